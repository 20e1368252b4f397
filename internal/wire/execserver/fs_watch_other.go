//go:build unix && !linux

package execserver

// watchPaths is not implemented here; the client polls.
func watchPaths(missing []string, present string) (changes, bool) { return nil, false }
