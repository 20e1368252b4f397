package index

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// lock opens an index for writing, and builds an empty one if there is none.
func lock(t testing.TB, dir string) *Writer {
	t.Helper()
	w, err := Lock(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if !w.Usable() {
		if err := w.Build(func(func([]Entry) error) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func closeIt(t testing.TB, c interface{ Close() error }) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Error(err)
	}
}

// model is what an index must answer, computed from all entries.
type model map[string]Entry

func (m model) query(q Query) []string {
	all := slices.Collect(maps.Values(m))
	all = slices.DeleteFunc(all, func(e Entry) bool {
		return !q.selects(&e) || q.Glob != "" && !newGlob(q.Glob).match([]byte(cutName(e.Name))) || slices.ContainsFunc(q.Terms, func(t Term) bool { return !slices.Contains(e.Terms, t) })
	})
	slices.SortFunc(all, func(a, b Entry) int {
		if q.less(&a, &b) {
			return -1
		}
		return 1
	})
	var ids []string
	for _, e := range all {
		ids = append(ids, e.ID)
	}
	return ids
}

func query(s *Snapshot, q Query) []string {
	var ids []string
	for e := range s.Select(q) {
		ids = append(ids, e.ID)
	}
	return ids
}

func testEntry(r *rand.Rand, i int) Entry {
	e := Entry{
		ID: fmt.Sprintf("%x-%d", r.IntN(64), i), Created: 1000 + r.Int64N(50), Bytes: r.Int64N(1 << 40), Raw: r.Int64N(1 << 40),
		Flags: Flags(r.IntN(8)), Terms: []Term{NewTerm("engine", "process")},
		Name: []string{"", "build-a", "build-b", "deploy", "b", strings.Repeat("long", 70)}[r.IntN(6)],
	}
	e.Ended = e.Created + r.Int64N(50)
	for n := range r.IntN(4) {
		e.Terms = append(e.Terms, NewTerm("label", fmt.Sprint(n), fmt.Sprint(r.IntN(5))))
	}
	return e
}

// TestAgainstModel compares an index with a plain list, through additions,
// replacements, removals and merges.
func TestAgainstModel(t *testing.T) {
	for seed := range uint64(4) {
		r := rand.New(rand.NewPCG(seed, 1))
		dir := t.TempDir()
		want := make(model)
		w := lock(t, dir)
		for step := range 20 {
			var add []Entry
			var remove []Key
			for i := range r.IntN(40) {
				e := testEntry(r, step*100+i)
				add = append(add, e)
			}
			for _, e := range want {
				switch r.IntN(12) {
				case 0:
					remove = append(remove, e.Key())
				case 1: // replaced, as after a change of its name
					e.Terms = append(slices.Clone(e.Terms), NewTerm("name", "new"))
					add = append(add, e)
				}
			}
			if err := w.Write(add, remove); err != nil {
				t.Fatal(err)
			}
			for _, k := range remove {
				delete(want, k.ID)
			}
			for _, e := range add {
				want[e.ID] = e
			}
			if r.IntN(3) == 0 {
				if err := w.compact(); err != nil {
					t.Fatal(err)
				}
			}
			compare(t, r, dir, want)
		}
		closeIt(t, w)
	}
}

func compare(t *testing.T, r *rand.Rand, dir string, want model) {
	t.Helper()
	s, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer closeIt(t, s)
	if s.Len() != len(want) {
		t.Errorf("%d entries, want %d", s.Len(), len(want))
	}
	for range 20 {
		q := Query{Oldest: r.IntN(2) == 0}
		for range r.IntN(3) {
			q.Terms = append(q.Terms, NewTerm("label", fmt.Sprint(r.IntN(4)), fmt.Sprint(r.IntN(5))))
		}
		if r.IntN(3) == 0 {
			q.Prefix = fmt.Sprintf("%x", r.IntN(64))
		}
		if r.IntN(2) == 0 {
			q.Glob = []string{"build-*", "build-a", "*", "b?ild-[a-m]", "*y", "c*", "longlong*", "long"}[r.IntN(8)]
		}
		if r.IntN(3) == 0 {
			q.Since = 1000 + r.Int64N(100)
		}
		if r.IntN(3) == 0 {
			q.Before = 1000 + r.Int64N(60)
		}
		if r.IntN(2) == 0 {
			q.After = Key{1000 + r.Int64N(50), fmt.Sprintf("%x", r.IntN(64))}
		}
		if d := cmp.Diff(want.query(q), query(s, q)); d != "" {
			t.Fatalf("%+v (-want +got):\n%s", q, d)
		}
	}
	compareAges(t, r, s, want)
	compareGroups(t, r, s, want)
}

// compareGroups divides the entries by one label of a group of them.
func compareGroups(t *testing.T, r *rand.Rand, s *Snapshot, want model) {
	t.Helper()
	within := NewTerm("label", "0", fmt.Sprint(r.IntN(5)))
	groups := make(map[string]Sum)
	valueOf := func(e *Entry) (string, Term) {
		for v := range 5 {
			if term := NewTerm("label", "1", fmt.Sprint(v)); slices.Contains(e.Terms, term) {
				return fmt.Sprint(v), term
			}
		}
		return "", NewTerm("engine", "process") // of which all are
	}
	got := s.GroupBy(&within, func(e *Entry) (string, Term, bool) {
		full := want[e.ID]
		name, term := valueOf(&full)
		return name, term, name != ""
	})
	for _, e := range want {
		if !slices.Contains(e.Terms, within) {
			continue
		}
		if name, _ := valueOf(&e); name != "" {
			g := groups[name]
			g.add(&e)
			groups[name] = g
		}
	}
	if d := cmp.Diff(groups, got); d != "" {
		t.Errorf("groups (-want +got):\n%s", d)
	}
}

// compareAges compares the answers to a question about ends, in pages, with the
// model.
func compareAges(t *testing.T, r *rand.Rand, s *Snapshot, want model) {
	t.Helper()
	rules := []AgeRule{
		{NewTerm("label", "0", fmt.Sprint(r.IntN(5))), Never},
		{NewTerm("label", "1", fmt.Sprint(r.IntN(5))), 1000 + r.Int64N(100)},
		{NewTerm("label", "2", fmt.Sprint(r.IntN(5))), math.MaxInt64},
	}
	before := 1000 + r.Int64N(120)
	total := Totals{Oldest: math.MaxInt64}
	var old []Entry
	for _, e := range want {
		limit, found := before, false
		for _, rule := range rules {
			if slices.Contains(e.Terms, rule.Term) && (!found || rule.Before < limit) {
				limit, found = rule.Before, true
			}
		}
		if e.Ended < limit {
			old = append(old, e)
		}
		if limit == Never {
			total.Exempt++
		}
		total.Runs++
		total.Bytes += e.Bytes
		total.Raw += e.Raw
		total.Oldest = min(total.Oldest, e.Created)
	}
	slices.SortFunc(old, func(a, b Entry) int {
		return Key{a.Ended, a.ID}.compare(Key{b.Ended, b.ID})
	})
	var wantIDs, got []string
	for _, e := range old {
		wantIDs = append(wantIDs, e.ID)
	}
	if d := cmp.Diff(total, s.Totals(rules)); d != "" {
		t.Errorf("totals (-want +got):\n%s", d)
	}
	q := AgeQuery{Before: before, Rules: rules, Most: 1 + r.IntN(7)}
	for {
		page := s.Ended(q)
		for _, e := range page {
			got = append(got, e.ID)
		}
		if len(page) < q.Most {
			break
		}
		q.After = &page[len(page)-1]
	}
	if d := cmp.Diff(wantIDs, got); d != "" {
		t.Errorf("%+v (-want +got):\n%s", q, d)
	}
}

// TestDeath lets every step of a write and of a merge fail, as if the process had
// died there: the index then has all entries whose write has returned.
func TestDeath(t *testing.T) {
	for _, point := range []string{"index.write", "index.create", "index.replace", "index.replaced"} {
		for hit := 1; ; hit++ {
			dir := t.TempDir()
			r := rand.New(rand.NewPCG(1, uint64(hit)))
			w := lock(t, dir)
			want, doubt := make(model), make(model)
			disable := failpoint.Enable(point, hit, failpoint.Fail(failpoint.ErrInjected))
			var err error
			for i := 0; i < 12 && err == nil; i++ {
				e := testEntry(r, i)
				doubt[e.ID] = e
				if err = w.Write([]Entry{e}, nil); err == nil {
					want[e.ID] = e
				}
				if i%4 == 3 && err == nil {
					err = w.compact()
				}
			}
			disable()
			closeIt(t, w)
			s, openErr := Open(dir)
			if openErr != nil {
				t.Fatalf("%s, hit %d: %v", point, hit, openErr)
			}
			got := query(s, Query{})
			closeIt(t, s)
			for id := range want {
				if !slices.Contains(got, id) {
					t.Errorf("%s, hit %d: lost %s", point, hit, id)
				}
			}
			for _, id := range got {
				if _, ok := doubt[id]; !ok {
					t.Errorf("%s, hit %d: invented %s", point, hit, id)
				}
			}
			// The next writer continues, and no file is left over.
			w = lock(t, dir)
			if err := w.Write([]Entry{testEntry(r, 99)}, nil); err != nil {
				t.Error(err)
			}
			if err := w.compact(); err != nil {
				t.Error(err)
			}
			names, _ := filepath.Glob(filepath.Join(dir, "*"))
			if len(names) > len(w.manifest.files())+2 {
				t.Errorf("%s, hit %d: files %v, of which count %v", point, hit, names, w.manifest.files())
			}
			closeIt(t, w)
			if err == nil { // there are no more hits
				break
			}
		}
	}
}

// TestDamage flips and cuts bytes of every file: an index is refused or answers
// without a panic, and Verify finds what opening does not.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(7, 7))
	w := lock(t, dir)
	var all []Entry
	for i := range 40 {
		all = append(all, testEntry(r, i))
	}
	must(t, w.Write(all[:30], nil))
	must(t, w.compact())
	must(t, w.Write(nil, []Key{all[3].Key()}))
	must(t, w.Write(testMany(r, 200, 8), nil)) // too few to merge with the first segment
	must(t, w.compact())
	must(t, w.Write(all[30:], nil))
	closeIt(t, w)
	names, err := filepath.Glob(filepath.Join(dir, "*"))
	must(t, err)
	for _, name := range names {
		if filepath.Base(name) == lockName {
			continue
		}
		good, err := os.ReadFile(name)
		must(t, err)
		for at := 0; at < len(good); at += 1 + len(good)/40 {
			bad := slices.Clone(good)
			bad[at] ^= 0x41
			checkDamaged(t, dir, name, bad, at)
			checkDamaged(t, dir, name, good[:at], at)
		}
		must(t, os.WriteFile(name, good, 0o600))
	}
}

func testMany(r *rand.Rand, from, n int) (all []Entry) {
	for i := range n {
		all = append(all, testEntry(r, from+i))
	}
	return all
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// checkDamaged replaces the file of an index and reads it.
func checkDamaged(t *testing.T, dir, name string, b []byte, at int) {
	t.Helper()
	must(t, os.Remove(name)) // a segment is never changed in place
	must(t, os.WriteFile(name, b, 0o600))
	s, err := Open(dir)
	if err == nil {
		_ = query(s, Query{})
		_ = query(s, Query{Prefix: "1", Terms: []Term{NewTerm("engine", "process")}})
		_ = s.Ended(AgeQuery{Before: math.MaxInt64, Most: 3})
		closeIt(t, s)
	}
	w, lockErr := Lock(t.Context(), dir)
	must(t, lockErr)
	defer closeIt(t, w)
	// A log that was cut between two records looks whole.
	whole := strings.HasSuffix(name, logExt) && err == nil
	if w.Usable() && !whole {
		err = w.Verify()
	}
	if !whole && !errors.Is(err, ErrDamaged) && !errors.Is(err, ErrNone) {
		t.Errorf("%s, byte %d of %d: %v", filepath.Base(name), at, len(b), err)
	}
}

// TestReadersMeetMerges opens and queries an index while another goroutine
// changes it: a reader finds every entry that was there before it opened.
func TestReadersMeetMerges(t *testing.T) {
	dir := t.TempDir()
	w := lock(t, dir)
	defer closeIt(t, w)
	r := rand.New(rand.NewPCG(3, 3))
	first := testMany(r, 0, 50)
	must(t, w.Write(first, nil))
	done := make(chan error)
	go func() {
		for i := range 20 {
			err := w.Write(testMany(r, 100+10*i, 10), nil)
			if err == nil {
				err = w.compact()
			}
			if err != nil {
				done <- err
				return
			}
		}
		close(done)
	}()
	for {
		s, err := Open(dir)
		must(t, err)
		got := make(map[string]bool)
		for e := range s.Select(Query{}) {
			got[e.ID] = true
		}
		closeIt(t, s)
		for _, e := range first {
			if !got[e.ID] {
				t.Fatalf("lost %s", e.ID)
			}
		}
		select {
		case err := <-done:
			must(t, err)
			return
		default:
		}
	}
}

// TestBuildReplaces builds an index anew over a damaged one.
func TestBuildReplaces(t *testing.T) {
	dir := t.TempDir()
	w := lock(t, dir)
	r := rand.New(rand.NewPCG(5, 5))
	must(t, w.Write(testMany(r, 0, 10), nil))
	must(t, w.compact())
	closeIt(t, w)
	must(t, os.WriteFile(filepath.Join(dir, manifestName), []byte("nonsense"), 0o600))
	if _, err := Open(dir); !errors.Is(err, ErrDamaged) {
		t.Fatalf("open: %v", err)
	}
	w, err := Lock(t.Context(), dir)
	must(t, err)
	defer closeIt(t, w)
	if w.Usable() {
		t.Fatal("a damaged index is usable")
	}
	all := testMany(r, 100, 30)
	must(t, w.Build(func(add func([]Entry) error) error {
		return errors.Join(add(all[:7]), add(all[7:]))
	}))
	s, err := Open(dir)
	must(t, err)
	defer closeIt(t, s)
	if s.Len() != len(all) {
		t.Errorf("%d entries, want %d", s.Len(), len(all))
	}
}

// BenchmarkMillion measures an index of a million runs.
func BenchmarkMillion(b *testing.B) {
	const n = 1_000_000
	dir := b.TempDir()
	w := lock(b, dir)
	began := time.Now()
	for i := 0; i < n; {
		batch := make([]Entry, 0, logRecords)
		for range logRecords {
			batch = append(batch, Entry{
				ID: fmt.Sprintf("%08x%016x", uint32(i)*2654435761, i), Created: int64(i) * 1000, Ended: int64(i)*1000 + 500, Bytes: 4096,
				Terms: []Term{NewTerm("name", fmt.Sprint(i%50000)), NewTerm("engine", "process"), NewTerm("outcome", "exited"), NewTerm("label", "task", fmt.Sprint(i%10000)), NewTerm("label", "team", "core"), NewTerm("label", "subject", "alice")},
			})
			i++
		}
		must(b, w.Write(batch, nil))
		must(b, w.Compact())
	}
	var size int64
	names, _ := filepath.Glob(filepath.Join(dir, "*"))
	for _, name := range names {
		if fi, err := os.Stat(name); err == nil {
			size += fi.Size()
		}
	}
	b.Logf("%d bytes per run, %d segments, built in %v", size/n, len(w.manifest.Segments), time.Since(began))
	for _, bb := range []struct {
		name  string
		q     Query
		limit int
	}{
		{"newest", Query{}, 20},
		{"name", Query{Terms: []Term{NewTerm("name", "77")}}, 1},
		{"prefix", Query{Prefix: "abc1"}, 2},
		{"label", Query{Terms: []Term{NewTerm("label", "task", "777"), NewTerm("label", "team", "core")}}, 1000},
	} {
		b.Run(bb.name, func(b *testing.B) {
			for b.Loop() {
				s, err := Open(dir)
				must(b, err)
				left := bb.limit
				for range s.Select(bb.q) {
					if left--; left == 0 {
						break
					}
				}
				closeIt(b, s)
			}
		})
	}
	b.Run("ages", func(b *testing.B) {
		for b.Loop() {
			s, err := Open(dir)
			must(b, err)
			s.Ended(AgeQuery{Before: 1000, Most: 4096})
			closeIt(b, s)
		}
	})
	closeIt(b, w)
}
