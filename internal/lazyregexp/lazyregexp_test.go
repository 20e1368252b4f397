package lazyregexp

import "testing"

func TestNew(t *testing.T) {
	digits := New(`^[0-9]+$`)
	if !digits().MatchString("120") || digits().MatchString("x") {
		t.Error("it is another expression")
	}
	if digits() != digits() {
		t.Error("it was compiled twice")
	}
}

func TestMistake(t *testing.T) {
	broken := New(`(`)
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	broken()
}
