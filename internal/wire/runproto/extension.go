package runproto

import (
	"context"
	"encoding/json"

	"github.com/spool-run/spool"
)

// Extension is what a face of the server adds to a connection that speaks run/*. The
// zero value adds nothing.
type Extension struct {
	// Methods are further methods, by their names.
	Methods map[string]func(ctx context.Context, params json.RawMessage) (any, error)
	// Watch is called for a watch whose client wants to know of asks. What it
	// returns is called with each description that the watch has sent, an Info
	// without an id among them.
	Watch func(ctx context.Context, follow uint32) func(*spool.Info)
}
