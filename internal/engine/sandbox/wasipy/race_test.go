//go:build race

package wasipy_test

// raceEnabled reports whether the race detector is on.
const raceEnabled = true
