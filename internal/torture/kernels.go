package torture

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/host"
)

// Bounds of a soak of kernels.
const (
	soakWorkers = 8                // kernels alive at once
	soakSettle  = 60 * time.Second // after which a cell is unsettled
	soakStop    = 7 * time.Second  // after which a cell that is stopped has ended
	soakGone    = time.Second      // after which nothing of a killed keeper may live
	// soakDescriptors is how many a keeper may have more at the end than
	// after its first kernels: what it keeps ready for the next.
	soakDescriptors = 64
	// soakReady is how many processes a keeper has ready for the next
	// kernel: the one that forks them, and one that is forked.
	soakReady      = 2
	maxSoakDetails = 20
)

// SoakOptions say how much to ask of kernels.
type SoakOptions struct {
	Seed    uint64
	Binary  string // the spool to soak
	Dir     string // to work in
	Kernels int    // to start and end, in all
	Cells   int    // to run, in all
	Python  string // empty lets the server find one
}

// SoakReport is what came of it.
type SoakReport struct {
	Seed        uint64         `json:"seed"`
	Seconds     float64        `json:"seconds"`
	Kernels     int            `json:"kernels"`
	Cells       int            `json:"cells"`
	Outcomes    map[string]int `json:"outcomes"`  // of the cells
	Unsettled   int            `json:"unsettled"` // cells without an end
	Wrong       int            `json:"wrong"`     // cells that did something else
	StopMs      int64          `json:"stop_ms"`   // the longest from a request to stop to the end
	Orphans     int            `json:"orphans"`   // processes that outlived their kernel
	Descriptors [2]int         `json:"descriptors"`
	GoneMs      int64          `json:"gone_ms"` // after the keeper was killed
	Details     []string       `json:"details,omitempty"`
}

// Failed reports whether a promise was broken.
func (r *SoakReport) Failed() bool {
	return r.Unsettled > 0 || r.Wrong > 0 || r.Orphans > 0 || r.Descriptors[1] > r.Descriptors[0]+soakDescriptors ||
		r.StopMs > soakStop.Milliseconds() || r.GoneMs > soakGone.Milliseconds()
}

// WriteTable writes the report for a person.
func (r *SoakReport) WriteTable(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintf(tw, "seed\t%d\ntime\t%.1f s\nkernels\t%d\ncells\t%d\n", r.Seed, r.Seconds, r.Kernels, r.Cells)
	for _, name := range slices.Sorted(maps.Keys(r.Outcomes)) {
		fmt.Fprintf(tw, "  %s\t%d\n", name, r.Outcomes[name])
	}
	fmt.Fprintf(tw, "unsettled\t%d\nwrong\t%d\nslowest stop\t%d ms\norphans\t%d\ndescriptors of the keeper\t%d, then %d\ngone after kill -9\t%d ms\n",
		r.Unsettled, r.Wrong, r.StopMs, r.Orphans, r.Descriptors[0], r.Descriptors[1], r.GoneMs)
	for _, d := range r.Details {
		fmt.Fprintf(tw, "%s\n", d)
	}
	return tw.Flush()
}

// soak is a soak under way.
type soak struct {
	SoakOptions
	client *client.Client
	mark   string // in the environment of every kernel

	mu     sync.Mutex
	report SoakReport
	cells  int // still to run
}

// SoakKernels starts a server, has it keep Python interpreters, asks them
// everything that cells do, and kills the keeper at the end.
func SoakKernels(ctx context.Context, o SoakOptions) (_ *SoakReport, err error) {
	state := filepath.Join(o.Dir, "state")
	s := &soak{SoakOptions: o, mark: fmt.Sprintf("spool-soak-%d-%d", os.Getpid(), time.Now().UnixNano()), cells: o.Cells}
	s.report = SoakReport{Seed: o.Seed, Kernels: o.Kernels, Cells: o.Cells, Outcomes: make(map[string]int)}
	began := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	server := exec.CommandContext(ctx, o.Binary, "exec-server", "--state", state, "--listen", "ws://127.0.0.1:0", "--on-exit", "keep")
	server.Stderr = os.Stderr
	server.WaitDelay = time.Second
	out, err := server.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := server.Start(); err != nil {
		return nil, fmt.Errorf("start the server: %w", err)
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait() // killed, as it should be
	}()
	url, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("the server printed no URL: %w", err)
	}
	if s.client, err = client.Dial(ctx, strings.TrimSpace(url), client.Options{}); err != nil {
		return nil, err
	}
	defer func() { _ = s.client.Close() }() // its server is killed anyway

	var wg sync.WaitGroup
	errs := make(chan error, soakWorkers)
	kernels := make(chan int)
	for range min(soakWorkers, o.Kernels) {
		wg.Go(func() {
			for n := range kernels {
				if err := s.kernel(ctx, n); err != nil {
					errs <- fmt.Errorf("kernel %d: %w", n, err)
					cancel()
					return
				}
			}
		})
	}
	for n := range o.Kernels {
		select {
		case kernels <- n:
		case <-ctx.Done():
		}
		if n == min(2*soakWorkers, o.Kernels-1) {
			s.report.Descriptors[0], err = descriptors(state)
			if err != nil {
				break
			}
		}
	}
	close(kernels)
	wg.Wait()
	close(errs)
	if err := errors.Join(err, <-errs); err != nil {
		return nil, err
	}
	if s.report.Descriptors[1], err = descriptors(state); err != nil {
		return nil, err
	}
	if s.report.Orphans, err = s.orphans(ctx); err != nil {
		return nil, err
	}
	if err := s.killKeeper(ctx, state); err != nil {
		return nil, err
	}
	s.report.Seconds = time.Since(began).Seconds()
	return &s.report, nil
}

// wrong notes a promise that was broken.
func (s *soak) wrong(count *int, format string, args ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*count++
	if len(s.report.Details) < maxSoakDetails {
		s.report.Details = append(s.report.Details, fmt.Sprintf(format, args...))
	}
}

// start starts a kernel.
func (s *soak) start(ctx context.Context) (*spool.Run, error) {
	cfg, err := json.Marshal(map[string]any{"interpreter": s.Python})
	if err != nil {
		return nil, err
	}
	return spool.Start(ctx, s.client, spool.Spec{
		Engine: spool.EngineKernel, Cwd: s.Dir, Config: cfg,
		Env: map[string]string{"SPOOL_SOAK": s.mark, "PATH": os.Getenv("PATH"), "HOME": os.Getenv("HOME")},
	})
}

// kernel is the life of one.
func (s *soak) kernel(ctx context.Context, n int) error {
	rng := rand.New(rand.NewPCG(s.Seed, uint64(n)))
	r, err := s.start(ctx)
	if err != nil {
		return err
	}
	cells := s.take(n)
	k := &soaked{soak: s, run: r, n: n}
	for range cells {
		if err := k.cell(ctx, rng); err != nil {
			return err
		}
	}
	// A kernel ends in one of three ways.
	switch rng.IntN(3) {
	case 0:
		err = r.Kill(ctx)
	default:
		err = r.Stop(ctx)
	}
	if err != nil {
		return err
	}
	waitCtx, cancel := context.WithTimeout(ctx, soakSettle)
	defer cancel()
	if _, err := r.Wait(waitCtx); err != nil {
		s.wrong(&s.report.Unsettled, "kernel %d (run %s) does not end: %v", n, r.ID(), err)
	}
	return nil
}

// take returns how many cells a kernel runs: its share of what is left.
func (s *soak) take(n int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	share := s.cells / (s.Kernels - n)
	if n == s.Kernels-1 {
		share = s.cells
	}
	s.cells -= share
	return share
}

// orphans returns how many processes outlive their kernels: one that is about
// to end is none.
func (s *soak) orphans(ctx context.Context) (int, error) {
	ctx, cancel := context.WithTimeout(ctx, soakSettle)
	defer cancel()
	for {
		left := len(marked(s.mark)) - soakReady
		if left <= 0 {
			return 0, nil
		}
		select {
		case <-ctx.Done():
			return left, nil
		case <-time.After(5 * time.Millisecond): // nobody is told when somebody else's child ends
		}
	}
}

// killKeeper kills what keeps live kernels and takes the time until they are
// gone.
func (s *soak) killKeeper(ctx context.Context, state string) error {
	for range 3 {
		if _, err := s.start(ctx); err != nil {
			return err
		}
	}
	if len(marked(s.mark)) == 0 {
		return errors.New("no kernel lives that could be orphaned")
	}
	owners, err := host.Owners(state)
	if err != nil {
		return err
	}
	began := time.Now()
	for _, o := range owners {
		if p, err := os.FindProcess(o.Pid); err == nil {
			_ = p.Kill() // one that is gone needs none
		}
	}
	for time.Since(began) < 10*soakGone && len(marked(s.mark)) > 0 {
		time.Sleep(5 * time.Millisecond) // nobody is told when somebody else's child ends
	}
	s.report.GoneMs = time.Since(began).Milliseconds()
	return nil
}

// descriptors is how many the keepers of a directory have open.
func descriptors(state string) (int, error) {
	owners, err := host.Owners(state)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, o := range owners {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", o.Pid))
		if err == nil { // one that just ended has none
			n += len(list)
		}
	}
	return n, nil
}

// marked returns the processes that have a mark in their environment and have
// not ended.
func marked(mark string) []string {
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil // the pattern is fine
	}
	var pids []string
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err == nil && strings.Contains(string(b), "SPOOL_SOAK="+mark) {
			pids = append(pids, filepath.Base(filepath.Dir(f)))
		}
	}
	return pids
}
