package wasipy_test

import (
	"testing"

	"github.com/spool-run/spool/engine/sandbox/guest"
)

func TestRunsCodeAndStreamsStdio(t *testing.T) {
	everywhere(t, func(t *testing.T, i guest.Isolation) {
		c := open(t, i, guest.Options{Fresh: true})
		prints(t, c, "print('hello')", "hello\n")
	})
}
