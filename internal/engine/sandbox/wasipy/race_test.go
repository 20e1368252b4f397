//go:build race

package wasipy_test

// raceEnabled says that the race detector is on.
const raceEnabled = true
