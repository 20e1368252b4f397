package polltest

import "testing"

func TestUntil(t *testing.T) {
	n := 0
	Until(t, "three", func() bool { n++; return n == 3 })
	if n != 3 {
		t.Errorf("asked %d times", n)
	}
}
