package ledger

import (
	"context"
	"errors"
	"iter"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
)

// described is a backend that lists descriptions.
type described struct {
	spool.Backend
	infos []spool.Info
}

func (d described) List(_ context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		for _, info := range d.infos {
			if f.Match(&info) && !yield(info, nil) {
				return
			}
		}
		yield(spool.Info{ID: "bad"}, errors.New("run bad is damaged"))
	}
}

func TestSum(t *testing.T) {
	day := time.Date(2026, 11, 15, 23, 30, 0, 0, time.UTC)
	exited := func(code int) *spool.Outcome { return &spool.Outcome{Kind: spool.Exited, Code: code} }
	b := described{infos: []spool.Info{
		{ID: "a", Engine: "process", State: spool.StateClosed, Created: day, Ended: day.Add(2 * time.Second), Outcome: exited(0), Bytes: 10, Labels: map[string]string{"team": "x"},
			Ledger: &spool.Ledger{Processes: &spool.ProcessUse{UserUs: 5, SystemUs: 6, PeakMemory: 7}, InputBytes: 3, Limits: []string{"timeout"}}},
		{ID: "b", Engine: "process", State: spool.StateClosed, Created: day, Ended: day.Add(time.Second), Outcome: exited(1), Bytes: 20,
			Ledger: &spool.Ledger{Processes: &spool.ProcessUse{UserUs: 50, SystemUs: 60, PeakMemory: 2}}},
		// Lost: nothing but its output is known.
		{ID: "c", Engine: "kernel", State: spool.StateClosed, Created: day, Ended: day.Add(time.Hour), Outcome: &spool.Outcome{Kind: spool.Unknown}, Bytes: 1},
		{ID: "d", Engine: "agent", State: spool.StateClosed, Created: day.Add(time.Hour), Ended: day.Add(time.Hour), Outcome: exited(0), TurnOutcome: "budget",
			Ledger: &spool.Ledger{Turns: 2, Tokens: &spool.TokenUse{Input: 100, Output: 5, CostUSD: 0.5}}},
	}}
	process := Group{Key: "process", Runs: 2, Failed: 1, WallMs: 3000, Output: 30, Input: 3,
		Processes: &spool.ProcessUse{UserUs: 55, SystemUs: 66, PeakMemory: 7}, Limits: map[string]int{"timeout": 1}}
	agent := Group{Key: "agent", Runs: 1, Failed: 1, Turns: 2, Tokens: &spool.TokenUse{Input: 100, Output: 5, CostUSD: 0.5}}
	kernel := Group{Key: "kernel", Runs: 1, Unknown: 1, Unmeasured: 1, Output: 1}
	total := process
	total.Key, total.Runs, total.Failed, total.Unknown, total.Unmeasured, total.Output, total.Turns, total.Tokens = "total", 4, 2, 1, 1, 31, 2, agent.Tokens
	sum := func(by string, f spool.Filter, match func(*spool.Info) bool) *Stats {
		t.Helper()
		parsed, err := ParseBy(by, time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		s, err := Sum(t.Context(), b, f, match, parsed)
		if err != nil {
			t.Fatal(err)
		}
		if len(s.Unread) != 1 {
			t.Errorf("errors %v", s.Unread)
		}
		s.Unread = nil
		return s
	}
	if diff := cmp.Diff(&Stats{By: "engine", Groups: []Group{process, agent, kernel}, Total: total}, sum("engine", spool.Filter{}, nil)); diff != "" {
		t.Error(diff)
	}
	for by, want := range map[string][]string{
		"day": {"2026-11-15", "2026-11-16"}, "label=team": {"", "x"}, "outcome": {"exited 0", "exited 1", "unknown"}, "name": {""}, "subject": {""},
	} {
		var got []string
		for _, g := range sum(by, spool.Filter{}, nil).Groups {
			got = append(got, g.Key)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("by %s: %s", by, diff)
		}
	}
	if s := sum("day", spool.Filter{Engine: "process"}, func(i *spool.Info) bool { return i.ID != "a" }); s.Total.Runs != 1 {
		t.Errorf("%d runs are selected", s.Total.Runs)
	}
	for _, by := range []string{"", "label", "label=", "engine=x", "week"} {
		if _, err := ParseBy(by, time.UTC); !errors.Is(err, spool.ErrInvalid) {
			t.Errorf("by %q: %v", by, err)
		}
	}
}
