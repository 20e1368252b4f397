// Package polltest waits in tests for what has no event: the state of a file, or
// of a process that is not a child.
package polltest

import (
	"testing"
	"time"
)

// patience is how long something may take. Only a test that fails waits as long.
const patience = 3 * time.Minute

// Until waits until a condition holds, or ends the test.
func Until(tb testing.TB, what string, holds func() bool) {
	tb.Helper()
	if !Holds(holds) {
		tb.Fatalf("after %v: not %s", patience, what)
	}
}

// Holds waits until a condition holds, and reports whether it did in time. It asks for
// half of the time at most.
func Holds(holds func() bool) bool {
	for end := time.Now().Add(patience); ; {
		asked := time.Now()
		if holds() {
			return true
		}
		if time.Now().After(end) {
			return false
		}
		time.Sleep(max(time.Millisecond, time.Since(asked)))
	}
}
