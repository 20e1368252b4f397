package wasipy_test

import (
	"testing"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/python"
)

// The files that a script leaves open are closed with its interpreter, and the
// next script does not see them.
func TestFilesLeftOpen(t *testing.T) {
	const leave = "import sys\nfor n in range(5): setattr(sys, f'left{n}', open(f'/tmp/left{n}', 'w'))\n"
	for name, test := range map[string]struct {
		options guest.Options
		code    string
		exit    int
		times   int // in one context
	}{
		"by a context":       {guest.Options{}, leave, 0, 1}, // while that is there they are rightly open
		"by a fresh script":  {guest.Options{Fresh: true}, leave, 0, 4},
		"by a long script":   {guest.Options{Fresh: true}, leave + "for _ in range(300000): pass", 0, 4},
		"by one that left":   {guest.Options{}, leave + "import os\nos._exit(3)", 3, 4},
		"by one out of fuel": {guest.Options{Fuel: 5_000_000}, leave + "while True: pass", guest.ExitKilled, 4},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, i python.Isolation) {
				test.options.OpenFiles = 8
				for range 3 {
					c := open(t, i, test.options)
					for n := range test.times {
						res, h := run(t, c, test.code)
						if res.ExitCode != test.exit {
							t.Fatalf("round %d: %+v %s", n, res, h.stderr())
						}
						prints(t, c, "with open('/tmp/mine', 'w') as f: print(f.write('x'))", "1\n")
					}
					if err := c.Close(); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}
