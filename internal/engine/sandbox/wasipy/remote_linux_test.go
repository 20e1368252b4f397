package wasipy

import (
	"errors"
	"testing"
)

// TestHeardInterruptEndsTheNextWait has an interrupt heard between two calls, of which
// the second waits for the host: the host would not bring it again.
func TestHeardInterruptEndsTheNextWait(t *testing.T) {
	for name, call := range map[string]func(*remote) error{
		"read": func(r *remote) error { _, err := r.Read(make([]byte, 1)); return err },
		"ask":  func(r *remote) error { _, err := r.Ask("kind", nil); return err },
	} {
		r := &remote{pending: true}
		if err := call(r); !errors.Is(err, errInterrupt) || r.pending {
			t.Errorf("%s: %v, and the interrupt is pending: %v", name, err, r.pending)
		}
	}
}
