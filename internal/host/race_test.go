//go:build race

package host_test

// raceWeight is the factor of memory that the race detector needs.
const raceWeight = 4
