//go:build unix && !linux

package execserver

// watchPaths has no mechanism here; the client looks for itself.
func watchPaths(missing []string, present string) (changes, bool) { return nil, false }
