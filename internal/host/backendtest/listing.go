package backendtest

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// list returns the ids of the runs that a filter selects.
func list(t *testing.T, b spool.Backend, f spool.Filter) []spool.RunID {
	t.Helper()
	var ids []spool.RunID
	for info, err := range b.List(t.Context(), f) {
		if err != nil {
			t.Fatalf("list %+v: %v", f, err)
		}
		ids = append(ids, info.ID)
	}
	return ids
}

// finished starts a run of that id and waits for its end.
func finished(t *testing.T, b spool.Backend, id spool.RunID, name string) {
	t.Helper()
	spec := sh("true")
	spec.ID, spec.Name = id, name
	collect(t, start(t, b, spec))
}

func finds(t *testing.T, b spool.Backend) {
	finished(t, b, "abc1one", "job")
	finished(t, b, "abc2two", "job")
	finished(t, b, "def3three", "abc1")     // the beginning of another's id
	finished(t, b, "ghi4four", "ghi4")      // the beginning of its own id
	finished(t, b, "jkl5five", "abc2two")   // another's whole id
	finished(t, b, "mno6six", "My job: #1") // no id at all
	finished(t, b, "pqr7seven", "de")       // too short to contest another's id
	tests := []struct {
		text string
		want spool.RunID
		err  error
	}{
		{"abc1one", "abc1one", nil},
		{"abc1o", "abc1one", nil},
		{"job", "abc2two", nil}, // the newest of that name
		{"abc", "", spool.ErrAmbiguous},
		{"abc1", "", spool.ErrAmbiguous},
		{"de", "pqr7seven", nil},
		{"ghi4", "ghi4four", nil},
		{"abc2two", "abc2two", nil},
		{"My job: #1", "mno6six", nil},
		{"My job", "", spool.ErrNotFound},
		{"zzz", "", spool.ErrNotFound},
		{"--help", "", spool.ErrNotFound},
		{"", "", spool.ErrInvalid},
	}
	for _, tt := range tests {
		r, err := spool.Find(t.Context(), b, tt.text)
		if !errors.Is(err, tt.err) || err == nil && r.ID() != tt.want {
			t.Errorf("find %q: %v, %v", tt.text, r, err)
		}
	}
}

func filters(t *testing.T, b spool.Backend) {
	before := time.Now()
	finished(t, b, "aone", "x")
	finished(t, b, "atwo", "")
	between := time.Now()
	spec := sh("read x")
	spec.ID, spec.Name, spec.Stdin, spec.Labels = "bthree", "x", true, map[string]string{"color": "red", "size": "big"}
	live := start(t, b, spec)
	tests := []struct {
		name string
		f    spool.Filter
		want []spool.RunID
	}{
		{"all", spool.Filter{}, []spool.RunID{"bthree", "atwo", "aone"}},
		{"oldest first", spool.Filter{Oldest: true}, []spool.RunID{"aone", "atwo", "bthree"}},
		{"prefix", spool.Filter{Prefix: "a"}, []spool.RunID{"atwo", "aone"}},
		{"whole id as prefix", spool.Filter{Prefix: "aone"}, []spool.RunID{"aone"}},
		{"name", spool.Filter{Name: "x"}, []spool.RunID{"bthree", "aone"}},
		{"engine", spool.Filter{Engine: spool.EngineProcess}, []spool.RunID{"bthree", "atwo", "aone"}},
		{"other engine", spool.Filter{Engine: python.EngineKernel}, nil},
		{"running", spool.Filter{State: spool.StateRunning}, []spool.RunID{"bthree"}},
		{"exited", spool.Filter{State: spool.StateExited}, nil},
		{"closed", spool.Filter{State: spool.StateClosed}, []spool.RunID{"atwo", "aone"}},
		{"live", spool.Filter{Live: true}, []spool.RunID{"bthree"}},
		{"live and closed", spool.Filter{Live: true, State: spool.StateClosed}, nil},
		{"since before", spool.Filter{Since: before}, []spool.RunID{"bthree", "atwo", "aone"}},
		{"since between", spool.Filter{Since: between}, []spool.RunID{"bthree"}},
		{"created before", spool.Filter{Before: between}, []spool.RunID{"atwo", "aone"}},
		{"created before the first", spool.Filter{Before: before}, nil},
		{"outcome", spool.Filter{Outcome: spool.Exited}, []spool.RunID{"atwo", "aone"}},
		{"other outcome", spool.Filter{Outcome: spool.Failed}, nil},
		{"label", spool.Filter{Labels: map[string]string{"color": "red"}}, []spool.RunID{"bthree"}},
		{"labels", spool.Filter{Labels: map[string]string{"color": "red", "size": "small"}}, nil},
		{"label of any value", spool.Filter{HasLabels: []string{"color"}}, []spool.RunID{"bthree"}},
		{"labels of any value", spool.Filter{HasLabels: []string{"color", "size"}}, []spool.RunID{"bthree"}},
		{"label that no run has", spool.Filter{HasLabels: []string{"color", "shape"}}, nil},
		{"pattern of names", spool.Filter{NameGlob: "?"}, []spool.RunID{"bthree", "aone"}},
		{"pattern of names and limit", spool.Filter{NameGlob: "x*", Limit: 1}, []spool.RunID{"bthree"}},
		{"pattern of names and labels", spool.Filter{NameGlob: "[w-y]", HasLabels: []string{"size"}}, []spool.RunID{"bthree"}},
		{"pattern that no name matches", spool.Filter{NameGlob: "y*"}, nil},
		{"limit", spool.Filter{Limit: 2}, []spool.RunID{"bthree", "atwo"}},
		{"limit of the oldest", spool.Filter{Limit: 2, Oldest: true}, []spool.RunID{"aone", "atwo"}},
		{"limit counts what is selected", spool.Filter{Limit: 1, Prefix: "a"}, []spool.RunID{"atwo"}},
		{"limit beyond the end", spool.Filter{Limit: 10}, []spool.RunID{"bthree", "atwo", "aone"}},
	}
	for _, tt := range tests {
		if diff := cmp.Diff(tt.want, list(t, b, tt.f)); diff != "" {
			t.Errorf("%s: %s", tt.name, diff)
		}
		tt.f.Brief = true
		if diff := cmp.Diff(tt.want, list(t, b, tt.f)); diff != "" {
			t.Errorf("%s, in brief: %s", tt.name, diff)
		}
	}
	briefly := func(f spool.Filter) (all []spool.Info) {
		for info, err := range b.List(t.Context(), f) {
			if err != nil {
				t.Fatal(err)
			}
			short := spool.Info{ID: info.ID, Name: info.Name, Engine: info.Engine, Labels: info.Labels, Created: info.Created, Ended: info.Ended, State: info.State}
			if info.Outcome != nil {
				short.Outcome = &spool.Outcome{Kind: info.Outcome.Kind}
			}
			all = append(all, short)
		}
		return all
	}
	if diff := cmp.Diff(briefly(spool.Filter{}), briefly(spool.Filter{Brief: true})); diff != "" {
		t.Errorf("a brief list differs: %s", diff)
	}
	if err := live.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	collect(t, live)
	if got := list(t, b, spool.Filter{State: spool.StateClosed, Limit: 1}); !slices.Equal(got, []spool.RunID{"bthree"}) {
		t.Errorf("closed after the end: %v", got)
	}
}

// counts checks that the numbers of runs are those of lists.
func counts(t *testing.T, b spool.Backend) {
	counter, ok := b.(spool.Counter)
	if !ok {
		t.Fatalf("%T is no Counter", b)
	}
	finished(t, b, "aone", "x")
	finished(t, b, "atwo", "y")
	spec := sh("read x")
	spec.ID, spec.Name, spec.Stdin = "bthree", "x", true
	live := start(t, b, spec)
	for _, f := range []spool.Filter{{}, {Live: true}, {State: spool.StateClosed}, {State: spool.StateExited}, {Name: "x"}, {Prefix: "a"}, {Name: "none"}, {NameGlob: "?"}, {HasLabels: []string{"none"}}, {Limit: 1, Oldest: true}} {
		unlimited := f
		unlimited.Limit = 0
		want := make(map[spool.State]int)
		for info, err := range b.List(t.Context(), unlimited) {
			if err != nil {
				t.Fatal(err)
			}
			want[info.State]++
		}
		got, err := counter.Count(t.Context(), f)
		if err != nil {
			t.Fatalf("count %+v: %v", f, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("count %+v (-want +got):\n%s", f, diff)
		}
	}
	if _, err := counter.Count(t.Context(), spool.Filter{State: "asleep"}); !errors.Is(err, spool.ErrInvalid) {
		t.Errorf("count with a filter that makes no sense: %v", err)
	}
	if err := live.Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	collect(t, live)
}

// listPages checks that a list read in pages has every run that existed at its
// start exactly once, whatever starts meanwhile, in both orders.
func listPages(t *testing.T, b spool.Backend) {
	const runs = 23
	var ids []spool.RunID
	for i := range runs {
		id := spool.RunID(fmt.Sprintf("p%02d", i))
		finished(t, b, id, "")
		ids = append(ids, id)
	}
	for _, oldest := range []bool{false, true} {
		want := slices.Clone(ids)
		if !oldest {
			slices.Reverse(want)
		}
		for _, limit := range []int{1, 4, runs} {
			var got []spool.RunID
			f := spool.Filter{Oldest: oldest, Limit: limit}
			for n := 0; ; n++ {
				var last *spool.Info
				for info, err := range b.List(t.Context(), f) {
					if err != nil {
						t.Fatal(err)
					}
					got = append(got, info.ID)
					last = &info
				}
				if last == nil {
					break
				}
				f.After = last.Cursor()
				if n < 3 {
					var wg sync.WaitGroup
					for range 2 {
						wg.Go(func() { start(t, b, sh("true")) })
					}
					wg.Wait()
				}
			}
			known := func(id spool.RunID) bool { return slices.Contains(ids, id) }
			seen := make(map[spool.RunID]bool)
			for _, id := range got {
				if seen[id] {
					t.Errorf("oldest %v, limit %d: %s came twice", oldest, limit, id)
				}
				seen[id] = true
			}
			got = slices.DeleteFunc(got, func(id spool.RunID) bool { return !known(id) })
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("oldest %v, limit %d: %s", oldest, limit, diff)
			}
		}
	}
}

// listAfterRemoved checks that a list can continue after a run that was
// removed.
func listAfterRemoved(t *testing.T, b spool.Backend) {
	finished(t, b, "one", "")
	between := time.Now()
	finished(t, b, "three", "")
	removed := spool.Info{ID: "two", Created: between}
	for _, tt := range []struct {
		oldest bool
		want   spool.RunID
	}{{false, "one"}, {true, "three"}} {
		got := list(t, b, spool.Filter{Oldest: tt.oldest, After: removed.Cursor()})
		if !slices.Equal(got, []spool.RunID{tt.want}) {
			t.Errorf("oldest %v: %v, want %s", tt.oldest, got, tt.want)
		}
	}
}

func invalidFilters(t *testing.T, b spool.Backend) {
	for _, f := range []spool.Filter{{State: "asleep"}, {Limit: -1}, {After: "nonsense"}, {After: "zz.../x"}, {Outcome: "maybe"}, {NameGlob: "[a"}} {
		n := 0
		for _, err := range b.List(t.Context(), f) {
			n++
			wantErr(t, fmt.Sprintf("list %+v", f), err, spool.ErrInvalid)
		}
		if n != 1 {
			t.Errorf("list %+v has %d entries, want one error", f, n)
		}
	}
}
