//go:build amd64 || arm64

package pyodide

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/pyodidetest"
)

// TestManyInterpreters has all of many interpreters print, one after the other
// and several at once.
func TestManyInterpreters(t *testing.T) {
	t.Run("alone", func(t *testing.T) { many(t, guest.Setup{}, "print(%d)") })
	t.Run("numpy", func(t *testing.T) {
		s := guest.Setup{Packages: []string{"numpy"}, Wheels: pyodidetest.Wheels(t)}
		many(t, s, "import numpy\nprint(numpy.int64(%d))")
	})
}

func many(t *testing.T, s guest.Setup, code string) {
	const atOnce, each = 4, 25
	ctx := testContext(t)
	var wg sync.WaitGroup
	for i := range atOnce {
		c := open(t, real(t), func(o *guest.Options) { o.Setup, o.Fresh = s, true })
		wg.Go(func() {
			for j := range each {
				n := i*each + j
				h := newHost()
				r, err := c.Run(ctx, guest.Script{Code: fmt.Sprintf(code, n)}, h)
				if err != nil || r.ExitCode != 0 || h.stdout() != fmt.Sprintln(n) {
					t.Errorf("interpreter %d: %q, %+v, %v", n, h.stdout(), r, err)
					return
				}
			}
		})
		if i == 0 {
			wg.Wait() // the first goes alone
		}
	}
	wg.Wait()
}

// The result of a crash names its cause.
func TestCrashesNameTheirCause(t *testing.T) {
	for name, c := range map[string]struct{ code, want string }{
		"last words": {"import js\njs.process._rawDebug('why it fell')\njs.process.abort()", "why it fell"},
		"signal":     {"import js\njs.process.abort()", "SIG"},
		"exit":       {"import js\njs.process.exit(3)", "ended with status 3"},
	} {
		t.Run(name, func(t *testing.T) {
			b := open(t, real(t), nil)
			r, _ := do(t, b, c.code)
			if r.EndedBy != guest.Crashed || !r.Lost || !strings.Contains(r.Reason, c.want) {
				t.Errorf("%+v, want a crash of %q", r, c.want)
			}
			prints(t, b, "print(1)", "1\n")
		})
	}
}
