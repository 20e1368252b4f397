package cluster_test

import (
	"encoding/json"
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/cluster"
	"github.com/spool-run/spool/internal/cluster/natsd"
	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/netcut"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/servertest"
)

// TestRestartPolicies checks what can be said about restarts.
func TestRestartPolicies(t *testing.T) {
	for text, want := range map[string]int{"": 0, "never": 0, "lost:1": 1, "lost:100": cluster.MaxRestarts, "lost": -1, "lost:0": -1, "lost:101": -1, "lost:x": -1, "always": -1} {
		got, err := cluster.ParseRestart(text)
		if want < 0 && !errors.Is(err, spool.ErrInvalid) || want >= 0 && (err != nil || got != want) {
			t.Errorf("the policy %q is %d, %v", text, got, err)
		}
	}
	n, _ := join(t, store(t), cluster.Options{Name: "alone", Slots: 4})
	for _, tt := range []struct {
		id     spool.RunID
		labels map[string]string
	}{
		{"bad1", map[string]string{cluster.LabelRestart: "often"}},
		{"bad2", map[string]string{cluster.LabelExclusive: "yes"}},
		{"bad3", map[string]string{cluster.LabelAttempt: "7"}},
		{"bad4", map[string]string{cluster.LabelOf: "other"}},
		{spool.RunID(strings.Repeat("x", 97)), map[string]string{cluster.LabelRestart: "lost:1"}},
	} {
		spec := queued("default", "true")
		spec.ID = tt.id
		for k, v := range tt.labels {
			spec.Labels[k] = v
		}
		if info, err := n.Backend().Start(t.Context(), spec); !errors.Is(err, spool.ErrInvalid) {
			t.Errorf("a submit with the labels %v: %+v, %v", tt.labels, info, err)
		}
	}
	// The runs of this backend end with the process that starts them: nothing else
	// would end an exclusive one in time.
	spec := queued("default", "true")
	spec.ID, spec.Labels[cluster.LabelExclusive] = "exclusive", "true"
	backendtest.Start(t, n.Backend(), spec)
	if info := await(t, n.Backend(), "exclusive", spool.StateClosed); info.Outcome == nil || info.Outcome.Kind != spool.Failed {
		t.Errorf("an exclusive run that nothing would end is %+v", info)
	}
}

// fact reads what the store says about a run.
func fact(t *testing.T, f cluster.Facts, key string) (rec struct {
	State string
	Next  string
}) {
	t.Helper()
	is, err := f.Get(t.Context(), key)
	if err == nil {
		err = json.Unmarshal(is.Data, &rec)
	}
	if err != nil && !errors.Is(err, cluster.ErrNoFact) {
		t.Fatal(err)
	}
	return rec
}

// TestRestart cuts a node off from the store while it has a run that may be started
// again, and while it claims another one. A new run takes the place of each, and knows
// which attempt it is. When the node is back, it ends its copy and says how it ended.
func TestRestart(t *testing.T) {
	s := store(t)
	proxy, err := netcut.NewProxy(strings.TrimPrefix(s.URL(), "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer proxy.Close()
	facts, err := natsd.Connect(natsd.Options{URL: "nats://" + proxy.Addr(), Name: "victim"})
	if err != nil {
		t.Fatal(err)
	}
	timing := cluster.NewTiming(4 * time.Second)
	victim, _ := join(t, s, cluster.Options{Name: "victim", Slots: 8, Timing: timing, Facts: facts, Labels: map[string]string{"pool": "both,victim"}})
	witness := filepath.Join(t.TempDir(), "witness")
	restart := func(id spool.RunID, pool, policy string) spool.Spec {
		spec := queued(pool, "echo "+string(id)+"-$SPOOL_ATTEMPT >> "+witness+"; exec sleep 1000")
		spec.ID, spec.Name, spec.Labels[cluster.LabelRestart] = id, "name"+string(id), policy
		return spec
	}
	backendtest.Start(t, victim.Backend(), restart("job", "both", "lost:1"))
	await(t, victim.Backend(), "job", spool.StateRunning)
	ended := restart("ended", "both", "lost:1")
	ended.Argv = []string{"/bin/true"}
	backendtest.Start(t, victim.Backend(), ended)
	await(t, victim.Backend(), "ended", spool.StateClosed)

	other, _ := join(t, s, cluster.Options{Name: "other", Slots: 8, Timing: timing, Labels: map[string]string{"pool": "both"}})
	look, err := natsd.Connect(natsd.Options{Server: s, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer look.Close()
	until := func(key, state string) string {
		t.Helper()
		next := ""
		polltest.Until(t, key+" "+state, func() bool {
			rec := fact(t, look, key)
			next = rec.Next
			return rec.State == state
		})
		return next
	}
	until("queue.job", "kept")
	until("queue.ended", "done")

	cut := make(chan struct{})
	defer failpoint.Enable("cluster.claimed", 1, func() error {
		proxy.Refuse()
		proxy.Cut()
		close(cut)
		return failpoint.ErrInjected
	})()
	b := other.Backend()
	backendtest.Start(t, b, restart("claimed", "victim", "lost:2"))
	<-cut
	info := await(t, b, "joba2", spool.StateRunning)
	if info.Labels[cluster.LabelOf] != "job" || info.Labels[cluster.LabelAttempt] != "2" || info.Node != "other" || info.Name != "namejob" {
		t.Errorf("the second attempt is %+v", info)
	}
	if info, err := victim.Local().Stat(t.Context(), "job"); err != nil || info.State != spool.StateRunning {
		t.Errorf("the first attempt is %+v, %v on its node, which knows of nothing", info, err)
	}
	for id, next := range map[spool.RunID]string{"job": "joba2", "claimed": "claimeda2"} {
		polltest.Until(t, "the run that takes the place of "+string(id), func() bool {
			info, err := b.Stat(t.Context(), id)
			return err == nil && info.Outcome != nil && info.Outcome.Kind == spool.Unknown && strings.Contains(info.Outcome.Reason, "run "+next+" takes its place")
		})
	}
	await(t, b, "claimeda2", spool.StateQueued)
	if _, err := b.Stat(t.Context(), "endeda2"); !errors.Is(err, spool.ErrNotFound) && !strings.Contains(err.Error(), "do not answer") {
		t.Errorf("a second attempt of a run that ended: %v", err)
	}

	proxy.Admit()
	if outcome, err := spool.Attach(victim.Backend(), "job").Wait(t.Context()); err != nil || outcome.Signal != "SIGKILL" {
		t.Errorf("the copy of the node that was lost ended: %v, %v", outcome, err)
	}
	await(t, victim.Backend(), "claimeda2", spool.StateRunning)
	for id, next := range map[string]string{"job": "joba2", "claimed": "claimeda2"} {
		if got := until("run."+id, "closed"); got != next {
			t.Errorf("run %s is followed by %q", id, got)
		}
		until("queue."+id, "done")
	}
	polltest.Until(t, "three executions", func() bool { return len(lines(t, witness)) == 3 })
	got := lines(t, witness)
	slices.Sort(got)
	if !slices.Equal(got, []string{"claimed-2", "job-1", "job-2"}) {
		t.Errorf("executed were %q", got)
	}
	// A run that is stopped is not started again.
	if err := spool.Attach(victim.Backend(), "claimeda2").Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	until("run.claimeda2", "closed")
	until("queue.claimeda2", "done")
	if rec := fact(t, look, "queue.claimeda3"); rec.State != "" {
		t.Errorf("a run that was stopped is started again: %+v", rec)
	}
}

// TestExclusiveNeverOverlaps stops the server of a node that has an exclusive run. Its
// keeper ends the run by itself, and only then another node starts the next attempt.
func TestExclusiveNeverOverlaps(t *testing.T) {
	dir := t.TempDir()
	nats := startNATS(t, filepath.Join(dir, "nats"), "127.0.0.1:0")
	if nats == nil {
		t.Fatal("the NATS server did not start")
	}
	o := &outsideNodes{dir: dir, lease: "12s", nats: nats.URL}
	y := o.node(t, "y")
	bin := servertest.Binary(t)
	witness, lock := filepath.Join(dir, "witness"), filepath.Join(dir, "lock")
	spoolOutput(t, bin, "", "--state", y.state, "submit", "--id", "only", "--restart", "lost:3", "--exclusive", "--",
		"/bin/sh", "-c", "exec 9>"+lock+"; flock -n 9 || echo overlap >> "+witness+"; echo $SPOOL_ATTEMPT >> "+witness+"; sleep 1000")
	polltest.Until(t, "the first attempt", func() bool { return len(lines(t, witness)) == 1 })
	x := o.node(t, "x")
	c := x.dial(t)
	x.awaitNode(t, "y", "up")
	if err := syscall.Kill(y.server.Pid, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	defer syscall.Kill(y.server.Pid, syscall.SIGCONT)
	polltest.Until(t, "the second attempt", func() bool { return len(lines(t, witness)) > 1 })
	if got := lines(t, witness); !slices.Equal(got, []string{"1", "2"}) {
		t.Errorf("the attempts wrote %q", got)
	}
	if info := await(t, c, "onlya2", spool.StateRunning); info.Node != "x" || info.Labels[cluster.LabelOf] != "only" {
		t.Errorf("the second attempt is %+v", info)
	}
	if err := syscall.Kill(y.server.Pid, syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, "the end of the first attempt", func() bool {
		info, err := c.Stat(t.Context(), "only")
		return err == nil && info.Outcome != nil && info.Outcome.Signal == "SIGKILL"
	})
	if err := spool.Attach(c, "onlya2").Kill(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, c, "onlya2", spool.StateClosed)
}
