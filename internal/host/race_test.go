//go:build race

package host_test

// raceWeight is how many times more memory the race detector takes.
const raceWeight = 4
