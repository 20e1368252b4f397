package torture

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool/internal/netcut"
	"github.com/spool-run/spool/internal/pause"
)

// Options configure a torture: the server, the faults and the duration.
type Options struct {
	Seed   uint64
	Faults []Fault
	// Binary is the spool binary. It is the worker, and the server unless URL
	// is set.
	Binary string
	// URL is a running server on this machine. Only faults of clients and
	// workers are used against it.
	URL   string
	Token string
	// Peer is the binary of another exec-server, such as codex, to start and
	// test instead.
	Peer string
	// Dir is the working directory; it must exist.
	Dir string

	// The torture ends when all goals have been reached, and after Duration at
	// the latest. Without goals it lasts for Duration.
	Duration    time.Duration
	Runs        int
	Disconnects int
	Kills       int

	Clients int           // number of codex clients; negative means none
	Natives int           // number of clients of package client, if the server is Spool; negative means none
	Live    int           // concurrent runs per client
	Grace   time.Duration // time after which no process of an ended run may live
	Hang    time.Duration // time without news after which a run is given up
	MaxRSS  int64         // limit of the server and its keepers together
	Disk    int64         // size of the disk to fill

	// Log receives a line for every fault and run; it may be nil.
	Log io.Writer
	// Progress is called now and then.
	Progress func(*Report)
}

// Defaults of [Options].
const (
	DefaultDuration = 30 * time.Second
	DefaultClients  = 6
	DefaultNatives  = 2
	DefaultLive     = 3
	DefaultGrace    = 5 * time.Second
	DefaultHang     = 40 * time.Second
	DefaultMaxRSS   = 512 << 20
	DefaultDisk     = 2 << 30
)

func (o *Options) setDefaults() {
	if o.Duration == 0 && o.Runs == 0 && o.Disconnects == 0 && o.Kills == 0 {
		o.Duration = DefaultDuration
	}
	if o.Faults == nil {
		o.Faults = Faults
	}
	o.Clients = cmp.Or(o.Clients, DefaultClients)
	o.Natives = cmp.Or(o.Natives, DefaultNatives)
	o.Live = cmp.Or(o.Live, DefaultLive)
	o.Grace = cmp.Or(o.Grace, DefaultGrace)
	o.Hang = cmp.Or(o.Hang, DefaultHang)
	o.MaxRSS = cmp.Or(o.MaxRSS, DefaultMaxRSS)
	o.Disk = cmp.Or(o.Disk, DefaultDisk)
}

// driver is a client that runs workers.
type driver interface {
	serve(ctx context.Context)
	runWorker(ctx context.Context, r *run)
	settled(ctx context.Context) bool // waits until it has caught up; false if ctx ended
	proxy() *netcut.Proxy
	label() string
}

// trial is the state of one torture.
type trial struct {
	opts   Options
	mark   string
	dir    string // of ledgers and all other files
	worker string
	addr   string
	server *server // nil if the torture did not start it
	peer   int     // pid of the peer; zero if unknown
	began  time.Time
	wg     sync.WaitGroup

	numbers                               atomic.Uint32
	runs, exited, excusedRuns, lostStarts atomic.Int64
	refusals, audited                     atomic.Int64
	events, bytes, late                   atomic.Int64
	disconnects, resumes, kills, peak     atomic.Int64
	keeper                                atomic.Bool

	mu         sync.Mutex
	live       map[uint32]*run
	ended      map[uint32]*run // watched for leftover processes
	endedAt    map[uint32]time.Time
	results    []result
	excuses    []excuse
	faults     map[Fault]int
	skipped    map[Fault]int
	violations map[Kind]int64
	details    []Violation
}

// excuse is a fault that excuses an unknown outcome of the runs that were live
// during it.
type excuse struct {
	fault      Fault
	begin, end time.Time // end is zero while the fault lasts
}

// Run tortures a server and returns the report. An error means that the torture
// could not be performed.
func Run(ctx context.Context, o Options) (rep *Report, err error) {
	o.setDefaults()
	t := &trial{
		opts: o, mark: fmt.Sprintf("torture%x%x", o.Seed, time.Now().UnixNano()), dir: o.Dir, worker: o.Binary, began: time.Now(),
		live: make(map[uint32]*run), ended: make(map[uint32]*run), endedAt: make(map[uint32]time.Time),
		faults: make(map[Fault]int), skipped: make(map[Fault]int), violations: make(map[Kind]int64),
	}
	if o.Peer != "" {
		peer, pid, stop, err := startPeer(o.Peer)
		if err != nil {
			return nil, err
		}
		defer stop()
		o.URL, t.opts.URL, t.peer = peer, peer, pid
	}
	if o.URL == "" {
		cleanup, err := t.ownServer()
		if err != nil {
			return nil, err
		}
		defer func() { err = errors.Join(err, cleanup()) }()
	} else {
		u, err := url.Parse(o.URL)
		if err != nil || u.Scheme != "ws" || u.Host == "" {
			return nil, fmt.Errorf("torture %q: want a ws://HOST:PORT URL", o.URL)
		}
		t.addr = u.Host
		t.opts.Natives = 0
		t.opts.Faults = slices.DeleteFunc(slices.Clone(o.Faults), func(f Fault) bool { return f != Cut && f != Stall && f != Worker })
	}
	if err := t.execute(ctx); err != nil {
		return nil, err
	}
	return t.report(), nil
}

// ownServer starts the server under test.
func (t *trial) ownServer() (cleanup func() error, err error) {
	state := filepath.Join(t.dir, "state")
	if err := os.MkdirAll(state, 0o700); err != nil {
		return nil, fmt.Errorf("torture: %w", err)
	}
	unmount := func() error { return nil }
	if slices.Contains(t.opts.Faults, Disk) {
		if unmount, err = mountDisk(state, t.opts.Disk); err != nil {
			t.logf("the disk fault is off, because no disk can be mounted: %v", err)
			t.opts.Faults = slices.DeleteFunc(slices.Clone(t.opts.Faults), func(f Fault) bool { return f == Disk })
			unmount = func() error { return nil }
		}
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, unmount())
		}
	}()
	if t.addr, err = freeAddr(t.opts.Seed); err != nil {
		return nil, err
	}
	binaries := []string{t.opts.Binary}
	if slices.Contains(t.opts.Faults, Upgrade) {
		other, err := copyBinary(t.opts.Binary, t.dir)
		if err != nil {
			return nil, err
		}
		binaries = append(binaries, other)
	}
	log, err := os.OpenFile(filepath.Join(t.dir, "server.log"), os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("torture: %w", err)
	}
	t.server = &server{binaries: binaries, state: state, addr: t.addr, log: log, args: []string{"--log-level", "warn"}, died: t.serverDied}
	if err := t.server.start(); err != nil {
		return nil, errors.Join(err, log.Close())
	}
	return func() error {
		t.server.kill()
		endKeepers(state)
		return errors.Join(log.Close(), unmount())
	}, nil
}

// execute runs workers and faults and performs the checks at the end.
func (t *trial) execute(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer t.wg.Wait()
	defer cancel()
	drivers, err := t.drivers()
	if err != nil {
		return err
	}
	defer func() {
		for _, d := range drivers {
			_ = d.proxy().Close() // a second Close does nothing
		}
	}()
	for _, d := range drivers {
		t.wg.Go(func() { d.serve(ctx) })
	}
	t.wg.Go(func() { t.watch(ctx) })

	// When the goals are reached, the faults end; then no run starts, and the
	// live runs continue to their end.
	faulting, endFaults := context.WithCancel(ctx)
	defer endFaults()
	if t.opts.Duration > 0 {
		faulting, endFaults = context.WithTimeout(ctx, t.opts.Duration)
		defer endFaults()
	}
	var lanes, work sync.WaitGroup
	quota := newQuota(t.opts.Disconnects, len(drivers))
	for i, d := range drivers {
		lanes.Go(func() { t.connectionLane(faulting, i, d, quota(i)) })
	}
	if t.server != nil || slices.Contains(t.opts.Faults, Worker) {
		lanes.Go(func() { t.serverLane(faulting) })
	}
	for i, d := range drivers {
		for range t.opts.Live {
			work.Go(func() {
				for faulting.Err() == nil {
					if err := t.one(ctx, i, d); err != nil {
						t.logf("%v", err)
						return
					}
				}
			})
		}
	}
	t.untilGoals(faulting)
	endFaults()
	lanes.Wait()
	for _, d := range drivers {
		d.proxy().Flow(netcut.ToClient)
		d.proxy().Flow(netcut.ToServer)
	}
	t.logf("the faults are over; waiting for the last runs")
	work.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	t.awaitEnds(ctx)
	if t.server != nil {
		if err := t.audit(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (t *trial) drivers() ([]driver, error) {
	var all []driver
	for i := range t.opts.Clients {
		c, err := newCodex(t, i)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	for i := range t.opts.Natives {
		n, err := newNative(t, i)
		if err != nil {
			return nil, err
		}
		all = append(all, n)
	}
	return all, nil
}

// newQuota divides a goal among lanes; -1 means no limit.
func newQuota(goal, lanes int) func(lane int) int {
	return func(lane int) int {
		if goal == 0 {
			return -1
		}
		n := goal / lanes
		if lane < goal%lanes {
			n++
		}
		return n
	}
}

// untilGoals waits until the goals are reached.
func (t *trial) untilGoals(ctx context.Context) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for ctx.Err() == nil && (t.opts.Runs+t.opts.Disconnects+t.opts.Kills == 0 || t.missing() != "") {
		select {
		case <-tick.C:
		case <-ctx.Done():
		}
	}
}

// missing returns the goal that has not been reached, or "".
func (t *trial) missing() string {
	for _, g := range []struct {
		name string
		goal int
		have int64
	}{{"runs", t.opts.Runs, t.runs.Load()}, {"disconnects", t.opts.Disconnects, t.disconnects.Load()}, {"server kills", t.opts.Kills, t.kills.Load()}} {
		if g.have < int64(g.goal) {
			return fmt.Sprintf("%d of %d %s", g.have, g.goal, g.name)
		}
	}
	return ""
}

// one runs one worker and checks the result.
func (t *trial) one(ctx context.Context, index int, d driver) error {
	number := t.numbers.Add(1)
	p := newPlan(t.opts.Seed, number, t.mark)
	p.Ledger = filepath.Join(t.dir, fmt.Sprintf("ledger-%d", number))
	l, err := createLedger(p.Ledger)
	if err != nil {
		return err
	}
	now := time.Now()
	r := &run{plan: p, via: d.label(), driver: index, began: now, moved: now, open: now, ledger: l, changed: make(chan struct{})}
	r.in = newInbox(newHistory(&r.plan))
	t.mu.Lock()
	t.live[number] = r
	t.mu.Unlock()
	d.runWorker(ctx, r)
	t.settle(ctx, r, d)
	return nil
}

// settle checks a run that is over.
func (t *trial) settle(ctx context.Context, r *run, d driver) {
	excused := t.excused(r)
	t.mu.Lock()
	delete(t.live, r.plan.Run)
	t.ended[r.plan.Run], t.endedAt[r.plan.Run] = r, time.Now()
	t.mu.Unlock()
	if ctx.Err() != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	h := r.in.hist
	found := slices.Clone(r.failed)
	if r.asked != nil && h.last > 0 || len(found) == 0 && h.last > 0 {
		t.runs.Add(1)
		t.events.Add(int64(h.last))
		t.bytes.Add(h.bytes)
		t.late.Add(int64(r.in.late))
		if t.server != nil && r.in.late > 0 {
			found = append(found, Violation{Kind: Reordered, Detail: fmt.Sprintf("%d events were pushed after later ones", r.in.late)})
		}
		if h.closed || len(found) == 0 {
			found = append(found, h.finish(verdict{
				failure: r.in.failure, excused: excused, killed: r.killed.Load(), ledger: r.ledger, acked: r.acked,
			})...)
		}
		switch {
		case r.in.failure != "" && excused:
			t.excusedRuns.Add(1)
		case h.exited:
			t.exited.Add(1)
		}
		if h.closed {
			res := result{name: r.plan.name(), id: r.id, via: r.via, tty: r.plan.TTY, last: h.last, sum: h.sum(), failure: r.in.failure}
			if c, ok := d.(*codex); ok {
				res.session = c.sessionID()
			}
			t.mu.Lock()
			t.results = append(t.results, res)
			t.mu.Unlock()
		}
	}
	for _, v := range found {
		v.Run, v.ID, v.Via = r.plan.name(), r.id, r.via
		t.violate(v)
	}
}

func (c *codex) sessionID() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.session
}

// detailed is the number of violations reported one by one.
const detailed = 50

func (t *trial) violate(v Violation) {
	if v.when.IsZero() {
		v.when = time.Now()
	}
	v.AtMs = v.when.Sub(t.began).Milliseconds()
	t.logf("VIOLATION %s", v)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.violations[v.Kind]++
	if len(t.details) < detailed {
		t.details = append(t.details, v)
	}
}

// refused checks a start that the server refused.
func (t *trial) refused(ctx context.Context, r *run, err error) {
	if t.excused(r) {
		t.refusals.Add(1)
		_ = pause.For(ctx, retryEvery) // the cause may last a while
		return
	}
	r.violate(Refused, "start: %v", err)
}

// excused reports whether a fault excuses an unknown outcome of a run.
func (t *trial) excused(r *run) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.excuses {
		if e.end.IsZero() || e.end.After(r.began) {
			return true
		}
	}
	return false
}

// excuse records the beginning of a fault and returns a function that records
// its end.
func (t *trial) excuse(f Fault) (end func()) {
	t.mu.Lock()
	defer t.mu.Unlock()
	i := len(t.excuses)
	t.excuses = append(t.excuses, excuse{fault: f, begin: time.Now()})
	return func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		t.excuses[i].end = time.Now()
	}
}

func (t *trial) serverDied(err error) {
	t.violate(Violation{Kind: Died, Detail: err.Error()})
	t.excuse(Server)()
	if err := t.server.start(); err != nil {
		t.violate(Violation{Kind: Died, Detail: err.Error()})
	}
}

func (t *trial) logf(format string, args ...any) {
	if t.opts.Log == nil {
		return
	}
	line := fmt.Sprintf("%9.3fs ", time.Since(t.began).Seconds()) + fmt.Sprintf(format, args...) + "\n"
	t.mu.Lock()
	defer t.mu.Unlock()
	_, _ = io.WriteString(t.opts.Log, line) // errors of the log are ignored
}

// report returns the report.
func (t *trial) report() *Report {
	t.mu.Lock()
	defer t.mu.Unlock()
	rep := &Report{
		Seed: t.opts.Seed, Server: t.addr, Keeper: t.keeper.Load(), DurationMs: time.Since(t.began).Milliseconds(),
		Faults: maps.Clone(t.faults), Skipped: maps.Clone(t.skipped), Disconnects: t.disconnects.Load(), Resumes: t.resumes.Load(), Kills: t.kills.Load(),
		Runs: t.runs.Load(), Exited: t.exited.Load(), Excused: t.excusedRuns.Load(), LostStarts: t.lostStarts.Load(),
		Refused: t.refusals.Load(), Audited: t.audited.Load(), Events: t.events.Load(), Bytes: t.bytes.Load(), Late: t.late.Load(),
		PeakRSS: t.peak.Load(), Unfinished: t.missing(), Violations: maps.Clone(t.violations), Details: slices.Clone(t.details),
	}
	if t.opts.URL != "" {
		rep.Server = t.opts.URL
	}
	if t.opts.Peer != "" {
		rep.Server = t.opts.Peer
	}
	if t.server != nil {
		rep.Server = "spool on " + t.addr
		t.server.mu.Lock()
		took := slices.Clone(t.server.restarts)
		t.server.mu.Unlock()
		slices.Sort(took)
		rep.Restart = Latency{P50: took[len(took)/2].Seconds() * 1000, Max: took[len(took)-1].Seconds() * 1000}
	}
	return rep
}
