package store

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
)

// TestStorageBy divides runs that are filed, compressed, live and none of these, and
// compares the groups before and after filing.
func TestStorageBy(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	add := func(id spool.RunID, engine string, day int, text string, labels map[string]string) {
		t.Helper()
		info := spool.Info{ID: id, Engine: engine, Created: epoch.Add(time.Duration(day) * 24 * time.Hour), State: spool.StateRunning, Labels: labels}
		j, err := s.Create(info)
		if err != nil {
			t.Fatal(err)
		}
		appendAll(t, j, output(1, []byte(text)))
		info.State, info.Ended = spool.StateClosed, info.Created
		if err := j.Seal(info); err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	long := strings.Repeat("compress me\n", 20000)
	for i := range 12 {
		engine, labels := "process", map[string]string{"team": "core"}
		if i%3 == 0 {
			engine, labels = "kernel", map[string]string{"team": "web", "task": fmt.Sprint(i)}
		}
		if i%4 == 0 {
			labels = nil
		}
		add(spool.RunID(fmt.Sprintf("r%d", i)), engine, i/5, long, labels)
	}
	live := create(t, s, "live")
	appendSizes(t, live, 10)
	keys := []string{"engine", "day", "label=team", "label=task", "label=nobody"}
	want := map[string]map[string]int{
		"engine":       {"process": 9, "kernel": 4}, // with the live one
		"day":          {"2026-01-02": 6, "2026-01-03": 5, "2026-01-04": 2},
		"label=team":   {"": 4, "core": 6, "web": 3},
		"label=task":   {"": 10, "3": 1, "6": 1, "9": 1},
		"label=nobody": {"": 13},
	}
	before := make(map[string]spool.Storage)
	for step := range 3 {
		for _, by := range keys {
			st, err := s.Storage(by)
			if err != nil {
				t.Fatal(err)
			}
			runs := make(map[string]int)
			var bytes, raw int64
			for _, g := range st.Groups {
				runs[g.Name] = g.Runs
				bytes += g.Bytes
				raw += g.RawBytes
			}
			if d := cmp.Diff(want[by], runs); d != "" && by != "day" {
				t.Errorf("step %d, by %s (-want +got):\n%s", step, by, d)
			}
			if by == "day" && (len(runs) != 3 || st.Groups[0].Name > st.Groups[2].Name) {
				t.Errorf("by day: %v", st.Groups)
			}
			if bytes != st.FinishedBytes+st.LiveBytes || raw != st.FinishedRawBytes+st.LiveBytes {
				t.Errorf("step %d, by %s: %d bytes, %d raw, of %+v", step, by, bytes, raw, st)
			}
			st.IndexBytes = 0
			if step == 1 {
				if d := cmp.Diff(before[by], st); d != "" {
					t.Errorf("by %s (-before +after filing):\n%s", by, d)
				}
			}
			if was := before[by]; step == 2 && (st.FinishedRawBytes != was.FinishedRawBytes || st.FinishedBytes*2 > was.FinishedBytes) {
				t.Errorf("compressed: %+v, before %+v", st, was)
			}
			before[by] = st
		}
		switch step {
		case 0:
			if _, _, err := s.File(t.Context(), later()); err != nil {
				t.Fatal(err)
			}
		case 1:
			if _, err := s.CompressEnded(t.Context(), time.Time{}, later(), nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, by := range []string{"size", "label=", "label"} {
		if _, err := s.Storage(by); !errors.Is(err, spool.ErrInvalid) {
			t.Errorf("by %q: %v", by, err)
		}
	}
}
