package doctor

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/archive"
)

// What a shipper says becomes a finding that people act on.
func TestArchiveFindings(t *testing.T) {
	now := time.Now()
	early, late := now.Add(-time.Minute), now.Add(-2*time.Hour)
	for name, test := range map[string]struct {
		status *archive.Status
		want   Verdict
	}{
		"none":     {nil, OK},
		"well":     {&archive.Status{ShippedRuns: 3, Updated: early}, OK},
		"waiting":  {&archive.Status{PendingRuns: 1, PendingSince: early}, OK},
		"failing":  {&archive.Status{PendingRuns: 1, PendingSince: early, Failure: "no space"}, Warning},
		"late":     {&archive.Status{PendingRuns: 1, PendingSince: late, Failure: "no space"}, Problem},
		"full":     {&archive.Status{Full: true}, Problem},
		"conflict": {&archive.Status{Conflicts: 1, Conflict: "run a"}, Problem},
	} {
		dir := t.TempDir()
		if test.status != nil {
			b, err := json.Marshal(test.status)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(filepath.Join(dir, "archive"), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(dir, "archive", "status.json"), b, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		f := shipping(dir, now)
		if f.Verdict != test.want || f.Text == "" || (f.Next == "") != (f.Verdict == OK) {
			t.Errorf("%s: %+v, want %s", name, f, test.want)
		}
	}
}
