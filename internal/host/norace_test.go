//go:build !race

package host_test

const raceWeight = 1
