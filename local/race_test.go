//go:build race

package local_test

// race says that the race detector is on, with which the embedded interpreter
// takes minutes to compile.
const race = true
