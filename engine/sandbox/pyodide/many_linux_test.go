//go:build amd64 || arm64

package pyodide

import (
	"fmt"
	"sync"
	"testing"

	"github.com/spool-run/spool/engine/sandbox/guest"
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
