package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/bench/internal/peers"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/pause"
	"github.com/spool-run/spool/internal/store"
)

// growthSizes are the numbers of finished runs at which Spool is measured.
var growthSizes = []int{1_000, 10_000, 100_000, 1_000_000}

const (
	growthLabel = 100 // runs that share a label
	growthAsks  = 9   // times that each question is asked
	// growthFlat is how much the memory of a process differs from one start to the
	// next.
	growthFlat = 1.25
	// growthSettle is how long a new keeper may be busy with what others left, and
	// growthQuiet how long it is then watched: a sweep is within.
	growthSettle, growthQuiet = 10 * time.Second, 70 * time.Second
)

// growthRows is the table of growth: what must not cost more with every finished
// run.
var growthRows = makeGrowthRows()

func makeGrowthRows() (rows []row) {
	first := growthSizes[0]
	for _, n := range growthSizes {
		name := func(metric string) string { return growthMetric(metric, n) }
		add := func(label, metric string, u unit, goal bound) {
			rows = append(rows, row{label: fmt.Sprintf("%d runs: %s", n, label), metric: name(metric), stat: median, unit: u, goal: goal})
		}
		for _, way := range []struct{ label, metric string }{{"", "direct"}, {", through a server", "served"}} {
			add("ps"+way.label, "ps."+way.metric, unitTime, bound{atMost: 0.025})
			add("find by name"+way.label, "name."+way.metric, unitTime, bound{atMost: 0.015})
			add("find by prefix"+way.label, "prefix."+way.metric, unitTime, bound{atMost: 0.015})
			add("label with 100 runs"+way.label, "label."+way.metric, unitTime, bound{atMost: 0.030})
			add("pattern of names with 100 runs"+way.label, "glob."+way.metric, unitTime, bound{atMost: 0.030})
			add("sql, runs with a label, 100"+way.label, "sql.label."+way.metric, unitTime, bound{})
			add("sql, number of runs"+way.label, "sql.count."+way.metric, unitTime, bound{})
		}
		add("launch of a server to ready", "open", unitTime, bound{atMost: 0.100})
		compare := func(label, metric, other string, u unit, goal bound) {
			rows = append(rows, row{label: fmt.Sprintf("%d runs: %s", n, label), metric: name(metric), stat: median, unit: u, ratio: fraction, goal: goal,
				otherSubject: subjectSpool, otherMetric: other})
		}
		compare("start to closed, beside 1000 runs", "start", name("start.few"), unitTime, bound{atMost: 1.03})
		compare("starts per second, beside 1000 runs", "starts", name("starts.few"), unitCount, bound{atLeast: 0.97})
		compare("memory of the server, beside 1000 runs", "memory.server", growthMetric("memory.server", first), unitBytes, bound{atMost: growthFlat})
		compare("memory of the keeper, beside 1000 runs", "memory.keeper", growthMetric("memory.keeper", first), unitBytes, bound{atMost: growthFlat})
		add("bytes of the index per run", "index", unitCount, bound{atMost: 400})
		rebuild := bound{atLeast: 50_000}
		if n < 100_000 { // waiting for the disk takes longer than the work
			rebuild = bound{}
		}
		add("runs per second of building the index", "rebuild", unitCount, rebuild)
		add("processor time of a sweep, per minute", "sweep", unitTime, bound{atMost: 0.060})
		add("processor time of an idle server and its keeper, per minute", "idle", unitTime, bound{})
	}
	return rows
}

func growthMetric(metric string, n int) string { return fmt.Sprintf("growth.%s.%d", metric, n) }

// measureGrowth fills a state directory with more and more finished runs, and
// measures at each size what a person waits for.
func measureGrowth(ctx context.Context, b *bench) error {
	dir := filepath.Join(b.dir, "growth") // the home of a server
	state := filepath.Join(dir, "spool")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	few := filepath.Join(b.dir, "few") // the home of a server that stays as it is
	if err := os.MkdirAll(few, 0o700); err != nil {
		return err
	}
	if err := generateRuns(ctx, filepath.Join(few, "spool"), 0, growthSizes[0]); err != nil {
		return fmt.Errorf("make %d runs: %w", growthSizes[0], err)
	}
	made := 0
	for _, n := range growthSizes[:b.pick(len(growthSizes), 2)] {
		if err := generateRuns(ctx, state, made, n); err != nil {
			return fmt.Errorf("make %d runs: %w", n, err)
		}
		made = n
		if err := b.growthAt(ctx, dir, few, n); err != nil {
			return fmt.Errorf("%d runs: %w", n, err)
		}
	}
	return errors.Join(removeState(few), removeState(dir))
}

// removeState removes the home of a server that was stopped. Its keeper ends a while
// after it, and writes until then.
func removeState(dir string) error {
	for began := time.Now(); time.Since(began) < time.Minute; time.Sleep(100 * time.Millisecond) {
		if owners, err := host.Owners(filepath.Join(dir, "spool")); err != nil || len(owners) == 0 {
			break
		}
	}
	return os.RemoveAll(dir)
}

// growthID is the id of a generated run: in no order, like those of Spool.
func growthID(i int) spool.RunID {
	return spool.RunID(fmt.Sprintf("%08x%012d", uint32(i)*2654435761, i))
}

// generateRuns adds finished runs to a state directory, and files them.
func generateRuns(ctx context.Context, state string, from, to int) (err error) {
	s, err := store.Open(state, store.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	began := time.Now().Add(-24 * time.Hour).UTC()
	for i := from; i < to; i++ {
		created := began.Add(time.Duration(i) * time.Millisecond)
		info := spool.Info{
			ID: growthID(i), Name: fmt.Sprintf("build-%d", i), Engine: spool.EngineProcess, Argv: []string{"make", "test"}, Cwd: "/src", Created: created,
			State: spool.StateRunning, Labels: map[string]string{"task": fmt.Sprint(i / growthLabel), "team": "core"},
		}
		j, err := s.Create(info)
		if err != nil {
			return err
		}
		e := spool.Event{Seq: 1, Time: created, Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: []byte("ok\n")}
		if err := j.Append(&e); err != nil {
			return err
		}
		info.State, info.Ended, info.Outcome = spool.StateClosed, created.Add(time.Second), &spool.Outcome{Kind: spool.Exited}
		if err := errors.Join(j.Seal(info), j.Close()); err != nil {
			return err
		}
		if (i+1)%10_000 == 0 || i+1 == to { // few files are in one directory
			for more := true; more; {
				if _, more, err = s.File(ctx, time.Now().Add(time.Minute)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// growthAt measures with n finished runs. The server of another directory has few.
func (b *bench) growthAt(ctx context.Context, dir, few string, n int) error {
	state := filepath.Join(dir, "spool")
	bin, err := filepath.Abs(b.spool)
	if err != nil {
		return err
	}
	if err := b.growthStore(ctx, state, n); err != nil {
		return err
	}
	if err := b.growthAsk(ctx, bin, state, "direct", n, "--state", state); err != nil {
		return err
	}
	for i := range growthAsks {
		srv, err := launch(ctx, bin, dir)
		if err != nil {
			return err
		}
		b.addTime(subjectSpool, growthMetric("open", n), srv.ready)
		if i == growthAsks-1 {
			err = b.growthServed(ctx, bin, state, few, srv, n)
		}
		if err := errors.Join(err, srv.stop()); err != nil {
			return err
		}
	}
	return nil
}

// growthAsk asks a spool command for runs.
func (b *bench) growthAsk(ctx context.Context, bin, state, way string, n int, flags ...string) error {
	target := n / 3
	questions := map[string][]string{
		"ps":     {"ps"},
		"name":   {"inspect", fmt.Sprintf("build-%d", target)},
		"prefix": {"inspect", string(growthID(target)[:12])},
		"label":  {"ps", "--all", "--quiet", "--filter", fmt.Sprintf("label=task=%d", target/growthLabel)},
		"glob":   {"ps", "--all", "--quiet", "--filter", fmt.Sprintf("name=build-%d??", target/growthLabel)},

		"sql.label": {"sql", "--csv", fmt.Sprintf("SELECT run FROM labels WHERE key = 'task' AND value = '%d'", target/growthLabel)},
		"sql.count": {"sql", "--csv", "SELECT count(*) FROM runs"},
	}
	for range growthAsks {
		for _, q := range []string{"ps", "name", "prefix", "label", "glob", "sql.label", "sql.count"} {
			cmd := exec.CommandContext(ctx, bin, append(questions[q], flags...)...)
			cmd.Env = append(os.Environ(), "SPOOL_CONFIG=", "SPOOL_SERVER=", "SPOOL_STATE="+state)
			began := time.Now()
			if out, err := cmd.CombinedOutput(); err != nil {
				return fmt.Errorf("%v: %w: %s", cmd.Args, err, out)
			}
			b.addTime(subjectSpool, growthMetric(q+"."+way, n), time.Since(began))
		}
	}
	return nil
}

// growthServed measures a server of the state directory, and its starts in turns with
// those of a server that has few runs.
func (b *bench) growthServed(ctx context.Context, bin, state, few string, srv *server, n int) (err error) {
	if err := b.growthAsk(ctx, bin, state, "served", n, "--server", srv.url); err != nil {
		return err
	}
	c, err := client.Dial(ctx, srv.url, client.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	if err := runOnce(ctx, c, 0, shortest); err != nil { // which starts a keeper
		return err
	}
	if !b.quick {
		if err := b.growthIdle(ctx, state, srv, n); err != nil {
			return err
		}
	}
	if err := b.growthStarts(ctx, bin, few, c, n); err != nil {
		return err
	}
	pids, err := growthProcesses(state, srv)
	if err != nil {
		return err
	}
	for who, pid := range pids {
		own, err := peers.Anonymous(pid) // the index is in the page cache
		if err != nil {
			return err
		}
		b.add(subjectSpool, growthMetric("memory."+who, n), float64(own))
	}
	return nil
}

// growthStarts measures starts of a server, in turns with one that has few runs.
func (b *bench) growthStarts(ctx context.Context, bin, few string, c *client.Client, n int) (err error) {
	srv, err := launch(ctx, bin, few)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.stop()) }()
	other, err := client.Dial(ctx, srv.url, client.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, other.Close()) }()
	const turns, each = 10, 50
	for range turns {
		for _, of := range []struct {
			suffix string
			client *client.Client
		}{{"", c}, {".few", other}} {
			if err := b.runs(ctx, of.client, growthMetric("start"+of.suffix, n), each); err != nil {
				return err
			}
			if err := b.growthRate(ctx, of.client, growthMetric("starts"+of.suffix, n)); err != nil {
				return err
			}
		}
	}
	return nil
}

// growthRate measures starts per second, with some in flight.
func (b *bench) growthRate(ctx context.Context, c *client.Client, metric string) error {
	const starts, inFlight = 320, 16
	began := time.Now()
	errs := make([]error, inFlight)
	var wg sync.WaitGroup
	for w := range inFlight {
		wg.Go(func() {
			for range starts / inFlight {
				errs[w] = errors.Join(errs[w], runOnce(ctx, c, 0, shortest))
			}
		})
	}
	wg.Wait()
	b.add(subjectSpool, metric, starts/time.Since(began).Seconds())
	return errors.Join(errs...)
}

// growthProcesses returns the processes of a server and its keeper.
func growthProcesses(state string, srv *server) (map[string]int, error) {
	pids := map[string]int{"server": srv.cmd.Process.Pid}
	owners, err := host.Owners(state)
	for _, o := range owners {
		pids["keeper"] = o.Pid
	}
	return pids, err
}

// growthIdle measures what a server and its keeper use while they have nothing to do.
func (b *bench) growthIdle(ctx context.Context, state string, srv *server, n int) error {
	pids, err := growthProcesses(state, srv)
	if err != nil {
		return err
	}
	used := func() (sum time.Duration, err error) {
		for _, pid := range pids {
			d, _, cpuErr := peers.CPU(pid)
			sum, err = sum+d, errors.Join(err, cpuErr)
		}
		return sum, err
	}
	wait := func(d time.Duration) (time.Duration, error) {
		if err := pause.For(ctx, d); err != nil {
			return 0, err
		}
		return used()
	}
	before, err := wait(growthSettle)
	if err != nil {
		return err
	}
	began := time.Now()
	after, err := wait(growthQuiet)
	b.addTime(subjectSpool, growthMetric("idle", n), time.Duration(float64(after-before)*float64(time.Minute)/float64(time.Since(began))))
	return err
}

// growthStore measures the index and a sweep, without another process.
func (b *bench) growthStore(ctx context.Context, state string, n int) (err error) {
	index := filepath.Join(state, "index")
	entries, err := os.ReadDir(index)
	if err != nil {
		return err
	}
	var size int64
	for _, e := range entries {
		if fi, err := e.Info(); err == nil {
			size += fi.Size()
		}
	}
	b.add(subjectSpool, growthMetric("index", n), float64(size)/float64(n))
	if err := os.RemoveAll(index); err != nil {
		return err
	}
	s, err := store.Open(state, store.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	began := time.Now()
	if _, _, err := s.File(ctx, time.Now()); err != nil {
		return err
	}
	b.add(subjectSpool, growthMetric("rebuild", n), float64(n)/time.Since(began).Seconds())
	for range 5 {
		before := processorTime()
		if _, err := s.Sweep(host.WithDefaults(store.Retention{}), nil, nil); err != nil {
			return err
		}
		b.addTime(subjectSpool, growthMetric("sweep", n), processorTime()-before)
	}
	return nil
}

// processorTime is what this process has used.
func processorTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
