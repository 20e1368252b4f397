package access

import (
	"errors"
	"testing"
	"time"
)

// TestCodes checks that a code is valid once and for some time, and that there are
// not too many.
func TestCodes(t *testing.T) {
	now := time.Unix(1000, 0)
	c := NewCodes()
	c.now = func() time.Time { return now }
	first, second := c.Make(), c.Make()
	for _, tt := range []struct {
		name, code string
		after      time.Duration
		want       error
	}{
		{"no code", "", 0, errInvalid},
		{"wrong", "-" + first[1:], 0, errInvalid}, // no code has a dash
		{"good", first, 0, nil},
		{"replayed", first, 0, errInvalid},
		{"expired", second, CodeFor, errExpired},
		{"expired and replayed", second, 0, errInvalid},
	} {
		now = now.Add(tt.after)
		if err := c.use(tt.code); !errors.Is(err, tt.want) {
			t.Errorf("%s: %v, want %v", tt.name, err, tt.want)
		}
	}
	if len(first) != codeSize || first == second {
		t.Errorf("codes %q and %q", first, second)
	}
	var codes []string
	for range MaxCodes + 3 {
		codes = append(codes, c.Make())
	}
	if n := c.Pending(); n != MaxCodes {
		t.Errorf("%d codes are pending, the most is %d", n, MaxCodes)
	}
	for i, code := range codes {
		if err := c.use(code); (err == nil) != (i >= 3) {
			t.Errorf("code %d of %d: %v", i, len(codes), err)
		}
	}
}
