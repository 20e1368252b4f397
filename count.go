package spool

import "context"

// Counter is a [Backend] that counts runs without listing them. The backends of
// packages local and client are Counters.
type Counter interface {
	// Count returns how many runs the filter selects, by their state. The
	// order, the limit and the cursor of the filter do not matter. Runs that
	// cannot be read do not count.
	Count(ctx context.Context, f Filter) (map[State]int, error)
}
