package cli

import "testing"

// TestDetachKeys checks which typed bytes are sent to a run, and which detach.
func TestDetachKeys(t *testing.T) {
	for _, c := range []struct {
		keys, typed, pass string
		detach            bool
	}{
		{"ctrl-p,ctrl-q", "ab", "ab", false},
		{"ctrl-p,ctrl-q", "a\x10\x11b", "a", true},
		{"ctrl-p,ctrl-q", "a\x10b", "a\x10b", false},
		{"ctrl-p,ctrl-q", "\x10\x10\x11", "\x10", true},
		{"ctrl-p,ctrl-q", "\x10", "", false},
		{"ctrl-a,d", "\x01x\x01d", "\x01x", true},
		{"a,a,b", "aaab", "a", true},
		{"ctrl-],q", "\x1dq", "", true},
		{"none", "\x10\x11", "\x10\x11", false},
	} {
		var keys keySequence
		if err := keys.Set(c.keys); err != nil {
			t.Fatal(err)
		}
		if keys.String() != c.keys {
			t.Errorf("%s is shown as %s", c.keys, keys.String())
		}
		for _, single := range []bool{false, true} {
			f := keyFilter{keys: keys}
			var pass []byte
			var detach bool
			if !single {
				pass, detach = f.filter([]byte(c.typed))
			}
			for i := 0; single && i < len(c.typed) && !detach; i++ {
				var b []byte
				b, detach = f.filter([]byte{c.typed[i]})
				pass = append(pass, b...)
			}
			if string(pass) != c.pass || detach != c.detach {
				t.Errorf("%s, typed %q: %q %v, want %q %v", c.keys, c.typed, pass, detach, c.pass, c.detach)
			}
		}
	}
	for _, bad := range []string{"", "ctrl-", "ctrl-1", "ctrl-p,", "ab", "é"} {
		if err := new(keySequence).Set(bad); err == nil {
			t.Errorf("%q was accepted", bad)
		}
	}
}
