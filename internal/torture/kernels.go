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
	"github.com/spool-run/spool/python"
)

// Limits of a soak of kernels.
const (
	soakWorkers = 8 // kernels alive at once
	// The times are those of a busy machine. They pass only if something is broken.
	soakSettle = 5 * time.Minute  // deadline of a cell
	soakStop   = time.Minute      // deadline of a stop
	soakGone   = 30 * time.Second // after a kill of the keeper, no kernel may live longer
	// soakDescriptors is how many more descriptors a keeper may have at the end
	// than after its first kernels, for the processes it keeps ready.
	soakDescriptors = 64
	// soakReady is the number of processes that a keeper keeps ready for the
	// next kernel: the zygote and one fork.
	soakReady      = 2
	maxSoakDetails = 20
)

// SoakOptions configure a soak.
type SoakOptions struct {
	Seed    uint64
	Binary  string // the spool binary under test
	Dir     string // the working directory
	Kernels int    // number of kernels in total
	Cells   int    // number of cells in total
	Python  string // empty lets the server choose one
}

// SoakReport is the result of a soak.
type SoakReport struct {
	Seed        uint64         `json:"seed"`
	DurationMs  int64          `json:"duration_ms"`
	Kernels     int            `json:"kernels"`
	Cells       int            `json:"cells"`
	Outcomes    map[string]int `json:"outcomes"`  // number of cells by outcome
	Unsettled   int            `json:"unsettled"` // cells that did not end
	Wrong       int            `json:"wrong"`     // cells with another result than expected
	StopMs      int64          `json:"stop_ms"`   // slowest stop, from the request to the end
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
	fmt.Fprintf(tw, "seed\t%d\ntime\t%.1f s\nkernels\t%d\ncells\t%d\n", r.Seed, float64(r.DurationMs)/1000, r.Kernels, r.Cells)
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

// soak is the state of a soak.
type soak struct {
	SoakOptions
	client *client.Client
	mark   string // in the environment of every kernel

	mu     sync.Mutex
	report SoakReport
	cells  int // left to run
}

// SoakKernels starts a server, runs cells of every kind in its kernels, and
// kills the keeper at the end.
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
		_ = server.Wait() // the server was killed
		endKeepers(state)
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
	s.report.DurationMs = time.Since(began).Milliseconds()
	return &s.report, nil
}

// wrong records a broken promise.
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
		Engine: python.EngineKernel, Cwd: s.Dir, Config: cfg,
		Env: map[string]string{"SPOOL_SOAK": s.mark, "PATH": os.Getenv("PATH"), "HOME": os.Getenv("HOME")},
	})
}

// kernel runs one kernel from start to end.
func (s *soak) kernel(ctx context.Context, n int) error {
	rng := rand.New(rand.NewPCG(s.Seed, uint64(n)))
	r, err := s.start(ctx)
	if err != nil {
		return err
	}
	cells := s.take(n)
	k := &soakKernel{soak: s, run: r, n: n}
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

// take returns how many cells a kernel runs: its share of the rest.
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

// orphans returns the number of processes that outlive their kernels. It waits
// for processes that are about to end.
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
		case <-time.After(5 * time.Millisecond): // the kernel does not report the end of another process's child
		}
	}
}

// killKeeper kills the keeper of live kernels and measures the time until the
// kernels are gone.
func (s *soak) killKeeper(ctx context.Context, state string) error {
	for range 3 {
		if _, err := s.start(ctx); err != nil {
			return err
		}
	}
	if len(marked(s.mark)) == 0 {
		return errors.New("no live kernel to orphan")
	}
	owners, err := host.Owners(state)
	if err != nil {
		return err
	}
	began := time.Now()
	for _, o := range owners {
		if p, err := os.FindProcess(o.Pid); err == nil {
			_ = p.Kill() // the process may have ended
		}
	}
	for time.Since(began) < 2*soakGone && len(marked(s.mark)) > 0 {
		time.Sleep(5 * time.Millisecond) // the kernel does not report the end of another process's child
	}
	s.report.GoneMs = time.Since(began).Milliseconds()
	return nil
}

// descriptors returns the number of open descriptors of the keepers of a
// directory.
func descriptors(state string) (int, error) {
	owners, err := host.Owners(state)
	if err != nil {
		return 0, err
	}
	n := 0
	for _, o := range owners {
		list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", o.Pid))
		if err == nil { // the process may have ended
			n += len(list)
		}
	}
	return n, nil
}

// marked returns the live processes that have a mark in their environment.
func marked(mark string) []string {
	files, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return nil // the pattern is valid
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
