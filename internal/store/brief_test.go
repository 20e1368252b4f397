package store

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/store/index"
)

// brief returns what a brief description has of a whole one.
func brief(info spool.Info) spool.Info {
	short := spool.Info{ID: info.ID, Name: info.Name, Engine: info.Engine, Labels: info.Labels, Created: info.Created, Ended: info.Ended, State: info.State}
	if info.Outcome != nil {
		short.Outcome = &spool.Outcome{Kind: info.Outcome.Kind}
	}
	return short
}

// listBriefly lists runs, with what a brief description has at least.
func listBriefly(t *testing.T, s *Store, f spool.Filter) (list []spool.Info) {
	t.Helper()
	f.Brief = true
	for info, err := range s.Select(f) {
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, brief(info))
	}
	return list
}

// A brief list reads one log for each property that it meets, and not one for each run.
func TestBriefListReadsFewLogs(t *testing.T) {
	s := openStore(t, t.TempDir(), Options{})
	const runs = 40
	for i := range runs {
		at := epoch.Add(time.Duration(i) * time.Minute)
		j, err := s.Create(spool.Info{ID: spool.RunID(fmt.Sprintf("r%02d", i)), Created: at, State: spool.StateRunning})
		if err != nil {
			t.Fatal(err)
		}
		info := spool.Info{
			ID: spool.RunID(fmt.Sprintf("r%02d", i)), Name: fmt.Sprintf("build-%d", i), Engine: "process", Created: at, Ended: at.Add(time.Second), State: spool.StateClosed,
			Outcome: &spool.Outcome{Kind: spool.Exited, Code: i}, Labels: map[string]string{"team": "core", "half": fmt.Sprint(i / (runs / 2))},
		}
		if err := j.Seal(info); err != nil {
			t.Fatal(err)
		}
		if err := j.Close(); err != nil {
			t.Fatal(err)
		}
	}
	file(t, s)
	var want []spool.Info
	for _, info := range infos(t, s) {
		want = append(want, brief(info))
	}
	for _, info := range want {
		if n := string(info.ID); n == "r39" || n == "r19" { // the first in the list of each half
			continue
		}
		if err := os.Remove(newSegment(s.shardDir(info.ID), info.ID, 1).path); err != nil {
			t.Fatal(err)
		}
	}
	if d := cmp.Diff(want, listBriefly(t, s, spool.Filter{})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if got := infos(t, s); len(got) != 2 {
		t.Errorf("a whole list has %d runs without logs", len(got))
	}
}

// A run whose hashes contradict each other, or tell too little, is not described by them.
func TestBriefOfAmbiguousTerms(t *testing.T) {
	info := spool.Info{ID: "a", Name: "x", Engine: "process", Outcome: &spool.Outcome{Kind: spool.Exited}, Labels: map[string]string{"k": "v", "empty": ""}}
	e := entryOf(&summary{info: info, segs: []*segment{{first: 1}}}, nil, false)
	other := info
	other.Engine, other.Outcome, other.Labels = "agent", &spool.Outcome{Kind: spool.Failed}, map[string]string{"k": "w", LabelImported: "now"}
	var b briefs
	if _, ok := b.describe(&e); ok {
		t.Error("described before anything is known")
	}
	b.learn(&e, &summary{info: info})
	o := entryOf(&summary{info: other, segs: []*segment{{first: 1}}}, []index.Term{index.NewTerm(termBlob, "1")}, false)
	b.learn(&o, &summary{info: other})
	got, ok := b.describe(&e)
	if d := cmp.Diff(info.Labels, got.Labels); !ok || d != "" || got.Engine != "process" || got.Outcome.Kind != spool.Exited {
		t.Errorf("%+v, %v: %s", got, ok, d)
	}
	with := func(terms ...index.Term) index.Entry {
		more := e
		more.Terms = append(append([]index.Term(nil), e.Terms...), terms...)
		return more
	}
	plain := with(index.NewTerm(termBlob, "1"))
	if _, ok := b.describe(&plain); !ok {
		t.Error("a blob that is known makes it ambiguous")
	}
	for name, e := range map[string]index.Entry{
		"two engines":           with(index.NewTerm(termEngine, "agent")),
		"two outcomes":          with(index.NewTerm(termOutcome, string(spool.Failed))),
		"two values of a label": with(labelTerm("k", "w")),
		"a label twice":         with(labelTerm("k", "")),
		"something unknown":     with(index.NewTerm(termBlob, "2")),
		"damage":                with(index.NewTerm(termManyBlobs)),
		"an imported run":       with(labelTerm(LabelImported, ""), labelTerm(LabelImported, "now")),
		"no engine":             {ID: "a", Terms: []index.Term{index.NewTerm(termOutcome, string(spool.Exited))}},
		"no outcome":            {ID: "a", Terms: []index.Term{index.NewTerm(termEngine, "process")}},
		"a value of no label":   {ID: "a", Terms: []index.Term{index.NewTerm(termEngine, "process"), index.NewTerm(termOutcome, string(spool.Exited)), labelTerm("k", "v")}},
		"a long name":           {ID: "a", Name: strings.Repeat("n", 255), Terms: e.Terms},
	} {
		if got, ok := b.describe(&e); ok {
			t.Errorf("%s: described as %+v", name, got)
		}
	}
}

// What a list remembers of the runs that it describes is bounded.
func TestBriefListRemembersABoundedNumber(t *testing.T) {
	b := briefs{known: make(map[index.Term]property, maxLearned)}
	for i := range maxLearned - 2 {
		b.known[index.Term(i)] = property{}
	}
	info := spool.Info{ID: "a", Engine: "process", Labels: map[string]string{"k": "v"}}
	e := entryOf(&summary{info: info, segs: []*segment{{first: 1}}}, nil, false)
	b.learn(&e, &summary{info: info})
	if len(b.known) > maxLearned {
		t.Errorf("%d terms are remembered", len(b.known))
	}
}
