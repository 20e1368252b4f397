package cli

import (
	"bytes"
	"fmt"
	"testing"
)

// TestPreparationLine checks that output does not continue the line about the
// preparation, and that no such line follows output.
func TestPreparationLine(t *testing.T) {
	var screen bytes.Buffer
	p := &preparation{w: &screen}
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
