package wasipy_test

import (
	"fmt"
	"testing"

	"github.com/spool-run/spool/engine/sandbox/guest"
)

// What a script leaves open is closed when its interpreter goes, and who comes
// next does not notice.
func TestFilesLeftOpen(t *testing.T) {
	const leave = "import sys\nfor n in range(5): setattr(sys, f'left{n}', open(f'/tmp/left{n}', 'w'))\n"
	for name, test := range map[string]struct {
		options guest.Options
		code    string
		exit    int
	}{
		"by a context":       {guest.Options{OpenFiles: 8}, leave, 0},
		"by a fresh script":  {guest.Options{Fresh: true, OpenFiles: 8}, leave, 0},
		"by a long script":   {guest.Options{Fresh: true, OpenFiles: 8}, leave + "for _ in range(300000): pass", 0},
		"by one that left":   {guest.Options{OpenFiles: 8}, leave + "import os\nos._exit(3)", 3},
		"by one out of fuel": {guest.Options{OpenFiles: 8, Fuel: 5_000_000}, leave + "while True: pass", guest.ExitKilled},
	} {
		t.Run(name, func(t *testing.T) {
			everywhere(t, func(t *testing.T, i guest.Isolation) {
				for range 3 {
					c := open(t, i, test.options)
					for n := range 4 {
						if n > 0 && test.exit == 0 && !test.options.Fresh {
							break // its files are rightly open
						}
						res, h := run(t, c, test.code)
						if res.ExitCode != test.exit {
							t.Fatalf("round %d: %+v %s", n, res, h.stderr())
						}
						if n > 0 {
							continue
						}
						if test.options.Fresh || test.exit != 0 {
							prints(t, c, fmt.Sprintf("with open('/tmp/mine', 'w') as f: print(f.write('%d'))", n), "1\n")
						}
					}
					if err := c.Close(); err != nil {
						t.Fatal(err)
					}
				}
			})
		})
	}
}
