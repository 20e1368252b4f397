package acpapi

import "github.com/spool-run/spool"

// Updates are what a client that loads a session with one run is told.
func Updates(events []spool.Event, cwd string) []any {
	var m mapper
	m.begin("run", 1, cwd)
	var all []any
	for i := range events {
		all = append(all, m.updates(&events[i], false, nil)...)
	}
	return all
}

// Limits, for tests.
const (
	MaxOutput    = maxOutput
	MaxTitle     = maxTitle
	PageSessions = pageSessions
)
