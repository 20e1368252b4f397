package store

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/store/index"
	"github.com/spool-run/spool/python"
)

// finishRun writes a complete run with this description and the data of an event.
func finishRun(t testing.TB, s *Store, info spool.Info, data string) {
	t.Helper()
	info.State = spool.StateRunning
	j, err := s.Create(info)
	if err != nil {
		t.Fatal(err)
	}
	defer j.Close()
	e := spool.Event{Seq: 1, Time: info.Created, Kind: python.KindDisplay, Data: []byte(data)}
	if data == "" {
		e = output(1, []byte("ok\n"))
	}
	appendAll(t, j, e)
	info.State, info.Ended, info.Outcome = spool.StateClosed, info.Created.Add(time.Second), &spool.Outcome{Kind: spool.Exited}
	if err := j.Seal(info); err != nil {
		t.Fatal(err)
	}
}

// What a build reads of a run in haste is what it reads with care, of runs of every
// kind.
func TestBuildReadsWhatIsThere(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{SegmentBytes: 300 << 10})
	quick := make(map[string]bool) // runs that are read in haste
	add := func(info spool.Info, data string) {
		info.Created = epoch.Add(time.Duration(len(quick)) * time.Minute)
		finishRun(t, s, info, data)
		quick[string(info.ID)] = true
	}
	digest := "sha256:" + strings.Repeat("ab", 32)
	add(spool.Info{ID: "plain", Engine: spool.EngineProcess}, "")
	add(spool.Info{ID: "plain1", Engine: spool.EngineProcess, Name: "ännchen", Labels: map[string]string{"a": "b", "c": ""}}, "")
	add(spool.Info{ID: "long", Engine: spool.EngineProcess, Title: strings.Repeat("x", 2*finalRead)}, "")
	add(spool.Info{ID: "blob", Engine: python.EngineKernel}, `{"image/png":{"blob":"`+digest+`"}}`)
	add(spool.Info{ID: "workspace", Engine: python.EngineKernel, Workspace: &spool.Workspace{}}, `{}`)
	var many strings.Builder
	for i := range maxBlobTerms + 1 {
		fmt.Fprintf(&many, `"sha256:%064x",`, i)
	}
	add(spool.Info{ID: "blobs", Engine: python.EngineKernel}, `[`+many.String()+`0]`)
	for _, info := range []spool.Info{
		{ID: "escaped", Engine: spool.EngineProcess, Name: `a "b"`},
		{ID: "imported", Engine: spool.EngineProcess, Labels: map[string]string{LabelImported: epoch.Add(time.Hour).Format(time.RFC3339)}},
		{ID: "renamed", Engine: spool.EngineProcess, Name: "before"},
		{ID: "damaged", Engine: spool.EngineProcess},
		{ID: "open", Engine: spool.EngineProcess},
	} {
		add(info, "")
		quick[string(info.ID)] = false
	}
	if err := s.Rename("renamed", "after"); err != nil {
		t.Fatal(err)
	}
	logLines(t, s, "segments", 700<<10)
	logLines(t, s, "compressed", 200<<10)
	if _, err := s.Compress(t.Context(), "compressed", nil); err != nil {
		t.Fatal(err)
	}
	quick["segments"], quick["compressed"] = false, false
	file(t, s)
	damaged := newSegment(s.shardDir("damaged"), "damaged", 1).path
	b := mustRead(t, damaged)
	b[len(b)-footerSize-10] ^= 1
	mustWrite(t, damaged, b)
	if err := os.Chmod(newSegment(s.shardDir("open"), "open", 1).path, 0o666); err != nil {
		t.Fatal(err)
	}

	shards, err := s.shards()
	if err != nil {
		t.Fatal(err)
	}
	sorted := func(e index.Entry) index.Entry {
		e.Terms = slices.Sorted(slices.Values(e.Terms))
		return e
	}
	r := newShardReader(s, map[spool.RunID]bool{})
	for _, dir := range shards {
		entries, err := r.read(dir)
		if err != nil {
			t.Fatal(err)
		}
		d, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer d.Close()
		for _, got := range entries {
			want, known := quick[got.ID]
			if !known {
				t.Errorf("unknown run %s, or twice", got.ID)
			}
			delete(quick, got.ID)
			id := spool.RunID(got.ID)
			segs, err := s.scanRun(id)
			if err != nil {
				t.Fatal(err)
			}
			careful, ok := s.filedEntry(id, segs, id == "renamed")
			if diff := cmp.Diff(sorted(careful), sorted(got)); diff != "" || !ok {
				t.Errorf("run %s: %s", id, diff)
			}
			if _, ok := r.entry(d, filepath.Base(segs[0].path), got.ID); ok != want {
				if id != "renamed" && id != "segments" { // which other files tell
					t.Errorf("run %s is read in haste: %v", id, ok)
				}
			}
		}
	}
	if len(quick) > 0 {
		t.Errorf("not found: %v", quick)
	}
	hidden := newShardReader(s, map[spool.RunID]bool{"plain": true})
	if entries, err := hidden.read(s.shardDir("plain")); err != nil || slices.ContainsFunc(entries, func(e index.Entry) bool { return e.ID == "plain" }) {
		t.Errorf("read a hidden run: %v", err)
	}
}
