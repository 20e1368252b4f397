package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/pause"
)

const (
	// crowdReaders is the number of readers, of one run or of one run each.
	crowdReaders = 10_000
	// cutReaders is the number of readers whose connections are cut at once.
	cutReaders = 5_000
	// filesOfRun is how many files the keeper of a live run has open for it: two of its
	// output, one for its end, and its log.
	filesOfRun = 4
	// filesElse are the files that a process has open for other things.
	filesElse = 500
	// crowdPace is the time between two events of a run.
	crowdPace = 500 * time.Millisecond
)

// affordable returns how many of n there can be, each with so many open files.
func (b *bench) affordable(n, files int, what string) (int, error) {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, err
	}
	limit.Cur = limit.Max // also of the servers that this process starts
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 0, err
	}
	if most := int(min(limit.Cur, 1<<30)-filesElse) / files; most < n {
		b.web.note("%d %s instead of %d, because a process may have %d open files here", most, what, n, limit.Cur)
		return most, nil
	}
	return n, nil
}

// crowd is the readers in another process.
type crowd struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Reader
	said  bytes.Buffer // on its standard error
}

// startCrowd starts the readers, and returns when all are connected.
func (b *bench) startCrowd(ctx context.Context, s *webServer, readers int, paths ...string) (*crowd, error) {
	c := &crowd{cmd: exec.CommandContext(ctx, b.self, crowdRole)}
	var err error
	if c.stdin, err = c.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := c.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	c.lines, c.cmd.Stderr = bufio.NewReader(out), &c.said
	plan, err := json.Marshal(crowdPlan{strings.TrimPrefix(s.url, "http://"), s.token, paths, readers})
	if err != nil {
		return nil, err
	}
	if err := c.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := c.stdin.Write(append(plan, '\n')); err != nil {
		return nil, errors.Join(err, c.end())
	}
	if line, err := c.lines.ReadString('\n'); err != nil || line != "ready\n" {
		return nil, errors.Join(fmt.Errorf("the readers said %q: %w", line, err), c.end())
	}
	return c, nil
}

// result waits until the readers are done.
func (c *crowd) result() (*crowdResult, error) {
	line, err := c.lines.ReadBytes('\n')
	var result crowdResult
	if err == nil {
		err = json.Unmarshal(line, &result)
	}
	return &result, errors.Join(err, c.end())
}

// end ends the readers, if they have not ended.
func (c *crowd) end() error {
	_ = c.stdin.Close()
	_, _ = io.Copy(io.Discard, c.lines) // they end with their streams, or with the context
	if err := c.cmd.Wait(); err != nil {
		return fmt.Errorf("the readers: %w: %s", err, c.said.Bytes())
	}
	return nil
}

// ticking starts a run that writes a line at a time, n of them, once the file exists.
func ticking(ctx context.Context, backend spool.Backend, gate string, n int) (*spool.Run, error) {
	script := `while ! [ -e "$0" ]; do sleep 0.05; done; i=0; while [ $i -lt $1 ]; do echo $i; i=$((i+1)); sleep ` + fmt.Sprint(crowdPace.Seconds()) + `; done`
	return spool.Start(ctx, backend, spool.Spec{Argv: []string{"sh", "-c", script, gate, fmt.Sprint(n)}})
}

// httpCrowd has thousands of readers follow one run, and then one run each, at two
// events a second.
func httpCrowd(ctx context.Context, b *bench) error {
	readers, err := b.affordable(b.pick(crowdReaders, crowdReaders/10), 1, "readers of one run")
	if err != nil {
		return err
	}
	home := filepath.Join(b.dir, "http-crowd")
	err = b.withServe(ctx, home, func(s *webServer) error {
		c, err := s.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		gate := filepath.Join(home, "gate")
		defer func() { _ = os.Remove(gate) }()
		r, err := ticking(ctx, c, gate, b.crowdLines())
		if err != nil {
			return err
		}
		return b.crowded(ctx, s, "http.crowd", readers, b.crowdLines(), func() error { return os.WriteFile(gate, nil, 0o600) }, eventsPath(r.ID()))
	})
	if err != nil {
		return err
	}
	runs, err := b.affordable(b.pick(crowdReaders, crowdReaders/20), filesOfRun, "runs with a reader each")
	if err != nil {
		return err
	}
	return b.withServe(ctx, home, func(s *webServer) error {
		c, err := s.dial(ctx)
		if err != nil {
			return err
		}
		defer c.Close()
		b.add(subjectSpool, "http.runs.count", float64(runs))
		m, err := startMany(ctx, c, runs)
		if err != nil {
			return errors.Join(err, m.end(ctx))
		}
		var wg sync.WaitGroup
		var failed error
		err = b.crowded(ctx, s, "http.runs", runs, b.crowdLines(), func() error {
			wg.Go(func() { failed = errors.Join(m.write(b.crowdLines()), m.end(ctx)) })
			return nil
		}, m.paths...)
		wg.Wait()
		return errors.Join(err, failed)
	})
}

// crowdLines is the number of lines that a followed run writes.
func (b *bench) crowdLines() int { return b.pick(40, 12) }

// crowded has readers follow runs, which write so many lines once begin was called, and
// then end. It measures what the server uses for the readers, and what is left of it when they are gone.
func (b *bench) crowded(ctx context.Context, s *webServer, metric string, readers, lines int, begin func() error, paths ...string) error {
	pid := s.cmd.Process.Pid
	memory, err := s.ownMemory()
	files, filesErr := openFiles(pid)
	if err := errors.Join(err, filesErr); err != nil {
		return err
	}
	c, err := b.startCrowd(ctx, s, readers, paths...)
	if err != nil {
		return errors.Join(err, begin())
	}
	if err := begin(); err != nil {
		return errors.Join(err, c.end())
	}
	_ = pause.For(ctx, 3*crowdPace) // all readers have had events
	before, beforeErr := s.cpu()
	began := time.Now()
	_ = pause.For(ctx, time.Duration(lines-6)*crowdPace) // and none is gone
	after, afterErr := s.cpu()
	took := time.Since(began)
	with, memoryErr := s.ownMemory()
	result, err := c.result()
	if err := errors.Join(err, beforeErr, afterErr, memoryErr); err != nil {
		return err
	}
	if result.Lost+result.Twice > 0 {
		return fmt.Errorf("%d events were lost, %d came twice", result.Lost, result.Twice)
	}
	b.add(subjectSpool, metric+".p50", result.P50)
	b.add(subjectSpool, metric+".p99", result.P99)
	b.add(subjectSpool, metric+".core", (after-before).Seconds()/took.Seconds())
	b.add(subjectSpool, metric+".each", float64(with-memory)/float64(readers))
	_ = pause.For(ctx, quiet)
	left, err := s.ownMemory()
	filesLeft, filesErr := openFiles(pid)
	b.add(subjectSpool, metric+".left", float64(left-memory))
	b.add(subjectSpool, metric+".files", float64(filesLeft-files))
	return errors.Join(err, filesErr)
}

// httpCut cuts the connections of thousands of readers at once, and measures how soon
// the last of them has events again.
func httpCut(ctx context.Context, b *bench) error {
	readers, err := b.affordable(b.pick(cutReaders, cutReaders/10), 2, "readers that are cut")
	if err != nil {
		return err
	}
	home := filepath.Join(b.dir, "http-crowd")
	return b.withServe(ctx, home, func(s *webServer) error {
		client, err := s.dial(ctx)
		if err != nil {
			return err
		}
		defer client.Close()
		gate := filepath.Join(home, "gate")
		defer func() { _ = os.Remove(gate) }()
		r, err := ticking(ctx, client, gate, b.pick(40, 16))
		if err != nil {
			return err
		}
		c, err := b.startCrowd(ctx, s, readers, eventsPath(r.ID()))
		if err != nil {
			return err
		}
		err = os.WriteFile(gate, nil, 0o600)
		_ = pause.For(ctx, 3*crowdPace)
		_, cutErr := io.WriteString(c.stdin, "cut\n")
		result, resultErr := c.result()
		if err := errors.Join(err, cutErr, resultErr); err != nil {
			return err
		}
		b.add(subjectSpool, "http.cut.again", result.Again)
		b.add(subjectSpool, "http.cut.lost", float64(result.Lost))
		b.add(subjectSpool, "http.cut.twice", float64(result.Twice))
		return nil
	})
}

// manyRuns are live runs whose output this process writes.
type manyRuns struct {
	runs  []*spool.Run
	files []*os.File // standard output of their processes
	paths []string
}

// startMany starts runs that do nothing, and opens their standard output: their
// processes cost nothing that would be taken for the server's.
func startMany(ctx context.Context, c *client.Client, n int) (*manyRuns, error) {
	m := &manyRuns{}
	var (
		mu   sync.Mutex
		wg   sync.WaitGroup
		errs [maxInFlight]error
	)
	for w := range maxInFlight {
		wg.Go(func() {
			for i := w; i < n && errs[w] == nil; i += maxInFlight {
				var r *spool.Run
				if r, errs[w] = spool.Start(ctx, c, spool.Spec{Argv: []string{"sleep", "1000"}}); errs[w] != nil {
					return
				}
				info, err := r.Info(ctx)
				f, openErr := os.OpenFile(fmt.Sprintf("/proc/%d/fd/1", info.Pid), os.O_WRONLY, 0)
				errs[w] = errors.Join(err, openErr)
				mu.Lock()
				m.runs, m.paths = append(m.runs, r), append(m.paths, eventsPath(r.ID()))
				if openErr == nil {
					m.files = append(m.files, f)
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return m, errors.Join(errs[:]...)
}

// write writes n lines to each run, the runs evenly over the time between two lines.
func (m *manyRuns) write(n int) error {
	const slices = 50
	tick := time.NewTicker(crowdPace / slices)
	defer tick.Stop()
	for range n {
		for i := range slices {
			for _, f := range m.files[i*len(m.files)/slices : (i+1)*len(m.files)/slices] {
				if _, err := f.WriteString("a line\n"); err != nil {
					return err
				}
			}
			<-tick.C
		}
	}
	return nil
}

// end ends the runs.
func (m *manyRuns) end(ctx context.Context) (err error) {
	for _, f := range m.files {
		err = errors.Join(err, f.Close())
	}
	for _, r := range m.runs {
		err = errors.Join(err, r.Kill(ctx))
	}
	return err
}
