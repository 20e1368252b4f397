package cli

import (
	"bytes"
	"fmt"
	"testing"
	"testing/synctest"
	"time"
)

// TestPreparationLine checks that output does not continue the line about the
// preparation, and that no such line follows output.
func TestPreparationLine(t *testing.T) {
	var screen bytes.Buffer
	p := &preparation{w: &screen, terminal: true}
	p.show("step 1")
	p.show("step 2")
	fmt.Fprintln(p.before(&screen), "output")
	p.show("step 3")
	p.clear(false)
	want := "\r\x1b[Kspool: step 1 …\r\x1b[Kspool: step 2 …\r\x1b[Koutput\n"
	if got := screen.String(); got != want {
		t.Errorf("the screen got %q, want %q", got, want)
	}
}

// TestPreparationWithoutATerminal checks that a preparation that takes long has a line at
// its beginning and one at its end, and that a short one has none.
func TestPreparationWithoutATerminal(t *testing.T) {
	for _, c := range []struct {
		name string
		took time.Duration
		want string
	}{
		{"short", longPreparation - time.Millisecond, "output\n"},
		{"long", 3500 * time.Millisecond, "spool: step 2 …\nspool: the preparation took 3.5 s\noutput\n"},
	} {
		synctest.Test(t, func(t *testing.T) {
			var out bytes.Buffer
			p := &preparation{w: &out}
			p.show("step 1")
			p.show("step 2")
			time.Sleep(c.took)
			synctest.Wait()
			fmt.Fprintln(p.before(&out), "output")
			p.show("step 3")
			p.clear(true)
			time.Sleep(2 * longPreparation)
			synctest.Wait()
			if got := out.String(); got != c.want {
				t.Errorf("%s: stderr got %q, want %q", c.name, got, c.want)
			}
		})
	}
}
