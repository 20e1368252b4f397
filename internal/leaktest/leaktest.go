// Package leaktest fails tests that leave goroutines behind.
package leaktest

import (
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// patience is how long goroutines may take to end. goleak by itself waits for
// less than half a second, in which a busy machine may not run them at all.
const patience = 2 * time.Minute

// Main runs the tests of a package and exits with [Code].
func Main(m interface{ Run() int }) { os.Exit(Code(m.Run())) }

// Code returns the exit code of tests: the code that they ended with, or 1 if
// they passed and goroutines are left.
func Code(code int) int {
	if code != 0 {
		return code
	}
	if err := find(patience); err != nil {
		fmt.Fprintln(os.Stderr, "goroutines are left:", err)
		return 1
	}
	return 0
}

// Check fails a test if, at its end, goroutines are left that were started after
// the call.
func Check(tb testing.TB) {
	tb.Helper()
	before := goleak.IgnoreCurrent()
	tb.Cleanup(func() {
		if err := find(patience, before); err != nil {
			tb.Error("goroutines are left:", err)
		}
	})
}

// find waits until no goroutines are left, and returns an error that shows the
// ones that stay.
func find(d time.Duration, options ...goleak.Option) error {
	for end := time.Now().Add(d); ; {
		err := goleak.Find(options...) // sleeps between its attempts
		if err == nil || time.Now().After(end) {
			return err
		}
	}
}
