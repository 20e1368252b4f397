package local_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/skiptest"
	"github.com/spool-run/spool/local"
)

// TestStateDirectoryOfAnotherUser checks that a state directory which another
// user made, or could have changed, is refused, and that opening one removes no
// file that its records name.
func TestStateDirectoryOfAnotherUser(t *testing.T) {
	give := func(t *testing.T, path string) {
		if os.Geteuid() != 0 {
			skiptest.Missing(t, "only root can give a file to another user")
		}
		if err := os.Chown(path, 65534, 65534); err != nil {
			t.Fatal(err)
		}
	}
	open := func(t *testing.T, path string) {
		if err := os.Chmod(path, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		name   string
		file   string // in the state directory
		change func(t *testing.T, path string)
		want   string // in the error
	}{
		{"directory of another user", ".", give, "belongs to user 65534"},
		{"hosts of another user", "hosts", give, "belongs to user 65534"},
		{"host of another user", "hosts/x.json", give, "belongs to user 65534"},
		{"writable directory", ".", open, "other users can change it"},
		{"writable hosts", "hosts", open, "other users can change it"},
		{"writable runs", "runs", open, "other users can change it"},
		{"writable host", "hosts/x.json", open, "other users can change it"},
		{"own", ".", func(*testing.T, string) {}, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "state")
			victim := filepath.Join(t.TempDir(), "victim")
			for _, d := range []string{"hosts", "runs"} {
				if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			for path, text := range map[string]string{
				victim:                             "precious",
				filepath.Join(dir, "hosts/x.json"): `{"id":"x","pid":1,"address":"keeper:` + victim + `"}`,
			} {
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			c.change(t, filepath.Join(dir, c.file))
			for _, o := range []local.Options{{}, {InProcess: true}} {
				b, err := local.Open(dir, o)
				if err == nil {
					b.Close()
				}
				if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
					t.Errorf("in process %v: error %v, want %q", o.InProcess, err, c.want)
				}
			}
			if _, err := os.Stat(victim); err != nil {
				t.Errorf("the file that the record names is gone: %v", err)
			}
		})
	}
}
