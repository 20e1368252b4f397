package archive_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/archive"
	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/polltest"
)

// A run reads the same from another machine after its own is gone: events, seqs, blobs,
// description, in one segment or many, compressed or not, renamed or not.
func TestRunsReadTheSame(t *testing.T) {
	eachPlace(t, func(t *testing.T, url string) {
		o, m, now := openPlace(t, url), newMachine(t), time.Now()
		m.run(t, "short", 3, nil, now)
		m.run(t, "long", 300, nil, now)
		m.run(t, "compressed", 300, nil, now)
		if _, err := m.store.Compress(t.Context(), "compressed", nil); err != nil {
			t.Fatal(err)
		}
		if err := m.store.Rename("short", "other"); err != nil {
			t.Fatal(err)
		}
		l := m.logs["short"]
		l.info.Name = "other"
		m.logs["short"] = l
		if _, _, err := m.store.File(t.Context(), now.Add(time.Hour)); err != nil { // long ago
			t.Fatal(err)
		}
		m.run(t, "empty", 0, nil, now)
		m.flush(t, o)
		if err := os.RemoveAll(m.dir); err != nil {
			t.Fatal(err)
		}
		m.compare(t, o)
		a := archive.New(o)
		if found, err := a.Has(t.Context(), "long"); !found || err != nil {
			t.Errorf("Has: %v, %v", found, err)
		}
		if found, err := a.Has(t.Context(), "other"); found || err != nil {
			t.Errorf("Has of no run: %v, %v", found, err)
		}
		if _, err := archive.NewCache(o, t.TempDir(), 0).Fetch(t.Context(), "none"); !errors.Is(err, spool.ErrNotFound) {
			t.Errorf("a run that is not there: %v", err)
		}
		listed := 0
		for man, err := range a.List(t.Context(), archive.Query{}) {
			if err != nil {
				t.Fatal(err)
			}
			if _, err := a.Verify(t.Context(), man.Run); err != nil {
				t.Error(err)
			}
			listed++
		}
		if listed != len(m.logs) {
			t.Errorf("%d runs are listed, want %d", listed, len(m.logs))
		}
	})
}

// A shipper that dies at any point loses nothing, and the next one goes on: every run has
// one manifest and all of its objects, and nothing waits.
func TestKilledShipperGoesOn(t *testing.T) {
	eachPlace(t, func(t *testing.T, url string) {
		m := newMachine(t)
		for _, id := range []spool.RunID{"a", "b", "c"} {
			m.run(t, id, 120, nil, time.Now())
		}
		points := []string{
			"archive.pinned=kill@2", "archive.object=kill@1", "archive.object=kill@3", "archive.checked=kill@1",
			"archive.committed=kill@1", "archive.shipped=kill@1", "archive.object=kill@4", "archive.shipped=kill@1",
		}
		if strings.HasPrefix(url, "dir:") {
			points = slices.Insert(points, 1, "archive.dir.written=kill@2")
		}
		for _, at := range points {
			if m.ship(t, url, at) {
				t.Errorf("%s was not reached", at)
			}
		}
		if !m.ship(t, url, "") {
			t.Fatal("the last one died, too")
		}
		o := openPlace(t, url)
		if got := keys(t, o, "manifest.json"); len(got) != len(m.logs) {
			t.Errorf("manifests %q", got)
		}
		for id := range m.logs {
			if _, err := archive.New(o).Verify(t.Context(), id); err != nil {
				t.Error(err)
			}
		}
		if left, err := os.ReadDir(filepath.Join(m.dir, "archive", "pending")); err != nil || len(left) > 0 {
			t.Errorf("what waits: %v, %v", left, err)
		}
		m.compare(t, o)
	})
}

// A run that waits is archived even if it was deleted meanwhile.
func TestPinnedRunOutlivesItsRemoval(t *testing.T) {
	eachPlace(t, func(t *testing.T, url string) {
		o, m := openPlace(t, url), newMachine(t)
		m.run(t, "a", 200, nil, time.Now())
		disable := failpoint.Enable("archive.object", 1, failpoint.Fail(failpoint.ErrInjected))
		s := m.shipper(o, archive.ShipOptions{Uploads: 1})
		if err := s.Flush(t.Context()); !errors.Is(err, failpoint.ErrInjected) {
			t.Fatalf("the upload: %v", err)
		}
		disable()
		if st := s.Status(); st.Failures != 1 || st.PendingRuns != 1 || st.Failure == "" || st.PendingSince.IsZero() {
			t.Errorf("the status is %+v", st)
		}
		if _, err := m.store.RemoveComplete([]spool.RunID{"a"}, false); err != nil {
			t.Fatal(err)
		}
		m.flush(t, o)
		m.compare(t, o)
		if st, err := archive.ReadStatus(m.dir); err != nil || st.ShippedRuns != 1 || st.PendingRuns != 0 || st.PendingBytes != 0 || st.Failure != "" {
			t.Errorf("the status is %+v, %v", st, err)
		}
	})
}

// What is not as it was stored is noticed: by a check, and by every reader.
func TestDamageIsNoticed(t *testing.T) {
	eachPlace(t, func(t *testing.T, url string) {
		o, m := openPlace(t, url), newMachine(t)
		m.run(t, "a", 200, nil, time.Now())
		m.flush(t, o)
		for _, kind := range []string{".seg", ".blob", "manifest.json"} {
			key := keys(t, o, kind)[0]
			r, err := o.Open(t.Context(), key)
			if err != nil {
				t.Fatal(err)
			}
			good, err := io.ReadAll(r)
			if err != nil || r.Close() != nil {
				t.Fatal(err)
			}
			bad := []byte(string(good))
			bad[len(bad)/2] ^= 1
			for _, b := range [][]byte{bad, good[:len(good)/2], nil, good} {
				replace(t, o, key, b)
				_, err := archive.New(o).Verify(t.Context(), "a")
				intact := len(b) == len(good) && string(b) == string(good)
				if intact != (err == nil) || !intact && kind != "manifest.json" && !errors.Is(err, archive.ErrDamaged) {
					t.Errorf("%s with %d bytes: %v", key, len(b), err)
				}
				if kind == ".blob" {
					continue
				}
				if _, err := archive.NewCache(o, t.TempDir(), 0).Fetch(t.Context(), "a"); intact != (err == nil) {
					t.Errorf("a reader with %s of %d bytes: %v", key, len(b), err)
				}
			}
		}
	})
}

// replace gives an object other bytes; without any it removes it.
func replace(t *testing.T, o archive.Objects, key string, b []byte) {
	t.Helper()
	if err := o.Remove(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if b == nil {
		return
	}
	sum := sha256.Sum256(b)
	err := o.Create(t.Context(), key, archive.Content{Body: io.NewSectionReader(strings.NewReader(string(b)), 0, int64(len(b))), SHA256: hex.EncodeToString(sum[:])})
	if err != nil {
		t.Fatal(err)
	}
}

// An object of an earlier attempt that is damaged is stored again.
func TestDamagedUploadIsRepeated(t *testing.T) {
	eachPlace(t, func(t *testing.T, url string) {
		o, m := openPlace(t, url), newMachine(t)
		m.run(t, "a", 100, nil, time.Now())
		if m.ship(t, url, "archive.checked=kill@1") {
			t.Fatal("the shipper was not killed")
		}
		replace(t, o, keys(t, o, ".seg")[0], []byte("something else"))
		m.flush(t, o)
		m.compare(t, o)
	})
}

// Two runs with one id are never mixed: the second stays where it is, and that is said.
func TestConflictIsSaid(t *testing.T) {
	eachPlace(t, func(t *testing.T, url string) {
		o, first, second := openPlace(t, url), newMachine(t), newMachine(t)
		first.run(t, "a", 10, nil, time.Now())
		first.flush(t, o)
		second.run(t, "a", 11, nil, time.Now())
		second.run(t, "b", 11, nil, time.Now())
		s := second.shipper(o, archive.ShipOptions{})
		if err := s.Flush(t.Context()); !errors.Is(err, archive.ErrConflict) {
			t.Errorf("the second run: %v", err)
		}
		if st := s.Status(); st.Conflicts != 1 || st.Conflict == "" || st.ShippedRuns != 1 || st.PendingRuns != 1 {
			t.Errorf("the status is %+v", st)
		}
		delete(second.logs, "a")
		first.compare(t, o)
		second.compare(t, o)
	})
}

// An archive that is away is tried again, and a run that was removed there stays removed.
func TestShipperTriesAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "archive")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	o, m := openPlace(t, "dir:"+dir), newMachine(t)
	m.run(t, "a", 10, nil, time.Now())
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	s := m.shipper(o, archive.ShipOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	wait(t, s, func(st archive.Status) bool { return st.Failures > 0 && st.PendingRuns == 1 })
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a shipper made the archive: %v", err)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	s.Nudge()
	wait(t, s, func(st archive.Status) bool { return st.ShippedRuns == 1 && st.Failure == "" })
	if err := archive.New(o).Remove(t.Context(), "a"); err != nil {
		t.Fatal(err)
	}
	m.run(t, "b", 10, nil, time.Now())
	s.Nudge()
	wait(t, s, func(st archive.Status) bool { return st.ShippedRuns == 2 })
	if found, err := archive.New(o).Has(t.Context(), "a"); found || err != nil {
		t.Errorf("a run that was removed: %v, %v", found, err)
	}
	// Another shipper of the state directory waits for this one.
	short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if err := m.shipper(o, archive.ShipOptions{}).Run(short); err != nil {
		t.Error(err)
	}
}

func wait(t *testing.T, s *archive.Shipper, holds func(archive.Status) bool) {
	t.Helper()
	if !polltest.Holds(func() bool { s.Nudge(); return holds(s.Status()) }) {
		t.Fatalf("the status is %+v", s.Status())
	}
}

// Only so many bytes wait; the rest is pinned when there is room.
func TestPendingIsBounded(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "archive")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	o, m := openPlace(t, "dir:"+dir), newMachine(t)
	for _, id := range []spool.RunID{"a", "b", "c", "d"} {
		m.run(t, id, 20, nil, time.Now())
	}
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	s := m.shipper(o, archive.ShipOptions{Pending: 1})
	if err := s.Flush(t.Context()); err == nil {
		t.Fatal("the archive is away")
	}
	if st := s.Status(); st.PendingRuns != 1 || !st.Full {
		t.Errorf("the status is %+v", st)
	}
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	if err := s.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.compare(t, o)
}

// counting counts the objects that are created at once.
type counting struct {
	archive.Objects
	mu        sync.Mutex
	now, most int
}

func (c *counting) Create(ctx context.Context, key string, content archive.Content) error {
	c.mu.Lock()
	c.now++
	c.most = max(c.most, c.now)
	c.mu.Unlock()
	defer func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.now--
	}()
	return c.Objects.Create(ctx, key, content)
}

// No more runs are uploaded at once than the limit says.
func TestUploadsAtOnce(t *testing.T) {
	o, m := &counting{Objects: openPlace(t, "dir:"+t.TempDir())}, newMachine(t)
	for _, id := range []spool.RunID{"a", "b", "c", "d", "e"} {
		m.run(t, id, 60, nil, time.Now())
	}
	if err := m.shipper(o, archive.ShipOptions{Uploads: 2}).Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	if o.most > 2 {
		t.Errorf("%d uploads at once", o.most)
	}
	m.compare(t, o)
}

// The retention of the archive goes by the age of runs and by bytes; labels keep runs
// longer, and some forever.
func TestArchiveRetention(t *testing.T) {
	eachPlace(t, func(t *testing.T, url string) {
		o, m, now := openPlace(t, url), newMachine(t), time.Now()
		m.run(t, "old", 10, nil, now.Add(-48*time.Hour))
		m.run(t, "kept", 10, map[string]string{"keep": "forever"}, now.Add(-48*time.Hour))
		m.run(t, "release", 10, map[string]string{"release": "1"}, now.Add(-48*time.Hour))
		m.run(t, "new", 10, nil, now.Add(-time.Hour))
		m.run(t, "newer", 10, nil, now)
		m.flush(t, o)
		a := archive.New(o)
		due := func(r archive.Retention) string {
			t.Helper()
			var ids []string
			// The manifests were stored now.
			all, err := a.Due(t.Context(), r, now.Add(time.Minute))
			if err != nil {
				t.Fatal(err)
			}
			for _, d := range all {
				if d.Why == "" {
					t.Errorf("run %s is due without a reason", d.Run)
				}
				ids = append(ids, string(d.Run))
			}
			return strings.Join(ids, " ")
		}
		release := func(age time.Duration) map[string]time.Duration { return map[string]time.Duration{"release": age} }
		for _, test := range []struct {
			r    archive.Retention
			want string
		}{
			{archive.Retention{}, ""},
			{archive.Retention{Bytes: 1 << 40}, ""},
			{archive.Retention{Bytes: 1, Labels: release(-1)}, "old new newer"},
			{archive.Retention{Age: 24 * time.Hour, Bytes: 1 << 40, Labels: release(30 * 24 * time.Hour)}, "old"},
			{archive.Retention{Age: 24 * time.Hour, Bytes: 1 << 40, Labels: release(time.Minute)}, "old release"},
			{archive.Retention{Age: 90 * time.Second}, ""}, // all were archived later
		} {
			if got := due(test.r); got != test.want {
				t.Errorf("%+v: %q, want %q", test.r, got, test.want)
			}
		}
		s := m.shipper(o, archive.ShipOptions{Retention: archive.Retention{Age: 24 * time.Hour, Bytes: 1 << 40}})
		if err := s.Flush(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := len(keys(t, o, "manifest.json")); got != 3 || s.Status().PrunedRuns != 2 {
			t.Errorf("%d runs are left, %+v", got, s.Status())
		}
		if err := s.Flush(t.Context()); err != nil || len(keys(t, o, "manifest.json")) != 3 {
			t.Errorf("a run that was removed came back: %v", err)
		}
	})
}

// What uploads left that nobody goes on with is removed once it is old.
func TestAbandonedUploads(t *testing.T) {
	url := "dir:" + t.TempDir()
	o, m := openPlace(t, url), newMachine(t)
	m.run(t, "a", 10, nil, time.Now())
	m.flush(t, o)
	m.run(t, "b", 10, nil, time.Now())
	if m.ship(t, url, "archive.checked=kill@1") {
		t.Fatal("the shipper was not killed")
	}
	all := len(keys(t, o, ""))
	a := archive.New(o)
	if n, err := a.RemoveAbandoned(t.Context(), time.Now().Add(47*time.Hour)); n != 0 || err != nil {
		t.Errorf("%d objects were removed too soon: %v", n, err)
	}
	n, err := a.RemoveAbandoned(t.Context(), time.Now().Add(49*time.Hour))
	if n == 0 || err != nil || len(keys(t, o, "")) != all-n {
		t.Errorf("%d objects were removed: %v", n, err)
	}
	if _, err := a.Verify(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	m.flush(t, o)
	m.compare(t, o)
}

// The cache keeps what was used lately, and otherwise no more than its limit.
func TestCacheIsBounded(t *testing.T) {
	o, m := openPlace(t, "dir:"+t.TempDir()), newMachine(t)
	for _, id := range []spool.RunID{"a", "b", "c"} {
		m.run(t, id, 10, nil, time.Now())
	}
	m.flush(t, o)
	state := t.TempDir()
	cache := archive.NewCache(o, state, 1)
	fetch := func(id spool.RunID) string {
		t.Helper()
		dir, err := cache.Fetch(t.Context(), id)
		if err != nil {
			t.Fatal(err)
		}
		return dir
	}
	a, b := fetch("a"), fetch("b")
	old := time.Now().Add(-2 * time.Hour)
	if err := os.Chtimes(filepath.Join(a, "manifest.json"), old, old); err != nil {
		t.Fatal(err)
	}
	c := fetch("c")
	for dir, want := range map[string]bool{a: false, b: true, c: true} {
		if _, err := os.Stat(dir); want != (err == nil) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	if fetch("a") != a {
		t.Error("the run has another directory")
	}
}
