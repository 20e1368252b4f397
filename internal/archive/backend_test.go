package archive_test

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/archive"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/keeper"
)

// While the archive does not answer, runs are found that this machine has, by their names
// too; for others the error says why they are not.
func TestArchiveAwayHidesNothing(t *testing.T) {
	place := filepath.Join(t.TempDir(), "archive")
	if err := os.Mkdir(place, 0o700); err != nil {
		t.Fatal(err)
	}
	o, m := openPlace(t, "dir:"+place), newMachine(t)
	m.run(t, "here", 3, nil, time.Now())
	if err := os.Rename(place, place+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(place, nil, 0o600); err != nil { // every look fails
		t.Fatal(err)
	}
	b, err := keeper.Open(keeper.Options{Dir: m.dir, Host: host.Options{Dir: m.dir}, Archive: archive.NewCache(o, m.dir, 0)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	}()
	if run, err := spool.Find(t.Context(), b, "nhere"); err != nil || run.ID() != "here" {
		t.Errorf("by its name: %v", err)
	}
	if _, err := spool.Find(t.Context(), b, "gone"); !errors.Is(err, spool.ErrNotFound) || !strings.Contains(err.Error(), "the archive does not tell") {
		t.Errorf("a run that may be in the archive: %v", err)
	}
}

// A run whose log is damaged here does not keep others from the archive.
func TestDamagedLogStaysHere(t *testing.T) {
	o, m, now := openPlace(t, "dir:"+t.TempDir()), newMachine(t), time.Now()
	m.run(t, "bad", 10, nil, now)
	m.run(t, "good", 10, nil, now)
	if _, _, err := m.store.File(t.Context(), now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(m.dir, "runs", "*", "bad.*.seg"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	log, err := os.ReadFile(files[0])
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		log[len(log)/2+i] ^= 0xff
		log[len(log)-1-i] ^= 0xff
	}
	if err := os.WriteFile(files[0], log, 0o600); err != nil {
		t.Fatal(err)
	}
	m.flush(t, o)
	delete(m.logs, "bad")
	m.compare(t, o)
	if found, err := archive.New(o).Has(t.Context(), "bad"); found || err != nil {
		t.Errorf("the damaged run: %v, %v", found, err)
	}
}

// The backend of another machine reads a run of the archive as one of its own: by page, as
// a stream, its blobs, its lines. It does not list it, and cannot delete it.
func TestBackendReadsTheArchive(t *testing.T) {
	eachPlace(t, func(t *testing.T, url string) {
		o, m := openPlace(t, url), newMachine(t)
		m.run(t, "gone", 120, nil, time.Now())
		m.flush(t, o)
		want := m.logs["gone"]
		dir := t.TempDir()
		b, err := keeper.Open(keeper.Options{Dir: dir, Host: host.Options{Dir: dir}, Archive: archive.NewCache(o, dir, 0)})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := b.Close(); err != nil {
				t.Error(err)
			}
		}()
		for round := range 2 {
			info, err := b.Stat(t.Context(), "gone")
			if err != nil || !reflect.DeepEqual(info, want.info) {
				t.Fatalf("round %d: %+v, %v", round, info, err)
			}
			var events []spool.Event
			for e, err := range b.Follow(t.Context(), "gone", 0) {
				if err != nil {
					t.Fatal(err)
				}
				events = append(events, e)
			}
			if !reflect.DeepEqual(events, want.events) {
				t.Errorf("round %d: %d events, want %d", round, len(events), len(want.events))
			}
			page, err := b.Read(t.Context(), "gone", spool.Query{After: 100})
			if err != nil || !page.End() || !reflect.DeepEqual(page.Events, want.events[100:]) {
				t.Errorf("round %d: a page of %d events: %v", round, len(page.Events), err)
			}
			for d, content := range want.blobs {
				r, err := b.Blob(t.Context(), "gone", d)
				if err != nil {
					t.Fatal(err)
				}
				got, err := io.ReadAll(r)
				if err != nil || r.Close() != nil || string(got) != string(content) {
					t.Errorf("a blob is %q: %v", got, err)
				}
			}
			// What the cache has lost is fetched again.
			if err := os.RemoveAll(filepath.Join(dir, "archive", "cache")); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := b.Blob(t.Context(), "gone", spool.Digest("sha256:"+strings.Repeat("0", 64))); !errors.Is(err, spool.ErrNotFound) {
			t.Errorf("no blob: %v", err)
		}
		if _, err := b.Stat(t.Context(), "never"); !errors.Is(err, spool.ErrNotFound) {
			t.Errorf("no run: %v", err)
		}
		for info, err := range b.List(t.Context(), spool.Filter{}) {
			t.Errorf("listed: %+v, %v", info, err)
		}
		if _, err := b.Remove(t.Context(), []spool.RunID{"gone"}, false); !errors.Is(err, spool.ErrNotFound) {
			t.Errorf("removed: %v", err)
		}
		if _, err := b.Send(t.Context(), "gone", spool.Input{Kind: spool.InputStdin}); !errors.Is(err, spool.ErrInputClosed) {
			t.Errorf("an input: %v", err)
		}
		if run, err := spool.Find(t.Context(), b, "gone"); err != nil || run.ID() != "gone" {
			t.Errorf("find: %v", err)
		}
	})
}
