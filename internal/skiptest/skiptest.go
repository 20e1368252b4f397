// Package skiptest skips tests that need what a machine lacks, but never in CI.
package skiptest

import (
	"fmt"
	"os"
	"testing"
)

// Missing ends a test whose requirement is missing on this machine: a feature of
// the kernel, a program, root's rights, a network. It skips the test or, if the
// environment variable CI is set, fails it, because CI that quietly tests less
// than it could protects nothing.
//
// A test for another platform, or one too long for -short, calls Skip itself.
func Missing(tb testing.TB, format string, args ...any) {
	tb.Helper()
	text := fmt.Sprintf(format, args...)
	if os.Getenv("CI") == "" {
		tb.Skip(text)
	} else {
		tb.Fatalf("%s; CI must not skip this test", text)
	}
}
