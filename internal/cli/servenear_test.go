package cli

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestListenNear checks when a node has a socket for other nodes of its machine, and that
// only its user can connect to it.
func TestListenNear(t *testing.T) {
	for _, tt := range []struct {
		name, dir string
		reachable bool
		want      bool
	}{
		{"reachable", "s", true, true},
		{"not reachable", "s", false, false},
		{"long path", strings.Repeat("long", 30), true, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			base, err := os.MkdirTemp("", "near") // short
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { os.RemoveAll(base) })
			state := filepath.Join(base, tt.dir)
			if err := os.Mkdir(state, 0o700); err != nil {
				t.Fatal(err)
			}
			l, path := listenNear(state, tt.reachable, slog.New(slog.DiscardHandler))
			if l == nil {
				if tt.want || path != "" {
					t.Errorf("there is no socket at %q", path)
				}
				return
			}
			defer l.Close()
			fi, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if !tt.want || fi.Mode() != os.ModeSocket|0o600 {
				t.Errorf("there is a socket with mode %v", fi.Mode())
			}
		})
	}
}
