package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool/bench/internal/peers"
	"github.com/spool-run/spool/internal/pause"
)

// peerIdle measures the memory of a server that has run one command.
func peerIdle(ctx context.Context, b *bench, p *measuredPeer) error {
	if err := p.runTrue(ctx); err != nil {
		return err
	}
	if err := pause.For(ctx, 500*time.Millisecond); err != nil {
		return err
	}
	return b.peerMemory(p, "peers.memory.idle")
}

func (b *bench) peerMemory(p *measuredPeer, metric string) error {
	n, err := p.memory()
	if err != nil {
		return err
	}
	b.add(p.Name, metric, float64(n))
	return nil
}

func (p *measuredPeer) runTrue(ctx context.Context) error {
	code, err := p.Run(ctx, shortest)
	if err == nil && code != 0 {
		err = fmt.Errorf("%s exited with %d", shortest, code)
	}
	return err
}

// peerTrue runs the shortest command one at a time.
func peerTrue(ctx context.Context, b *bench, p *measuredPeer) error {
	var took []float64
	for end := time.Now().Add(5 * time.Second); len(took) < b.pick(200, 30) && time.Now().Before(end); {
		began := time.Now()
		if err := p.runTrue(ctx); err != nil {
			return err
		}
		took = append(took, time.Since(began).Seconds())
	}
	slices.Sort(took)
	b.add(p.Name, "peers.true.p50", median.of(took))
	b.add(p.Name, "peers.true.p99", p99.of(took))
	return nil
}

// peerStarts runs the shortest command, 16 at a time.
func peerStarts(ctx context.Context, b *bench, p *measuredPeer) error {
	before, err := p.cpu(true)
	if err != nil {
		return err
	}
	var (
		wg         sync.WaitGroup
		begun      atomic.Int64
		done       atomic.Int64
		failed     [maxInFlight]error
		n          = int64(b.pick(1000, 200))
		began      = time.Now()
		limit      = began.Add(8 * time.Second)
		everything = func() bool { return begun.Add(1) > n || time.Now().After(limit) }
	)
	for i := range maxInFlight {
		wg.Go(func() {
			for !everything() {
				if failed[i] = p.runTrue(ctx); failed[i] != nil {
					return
				}
				done.Add(1)
			}
		})
	}
	wg.Wait()
	took := time.Since(began)
	if err := cmp.Or(failed[:]...); err != nil {
		return err
	}
	after, err := p.cpu(true)
	if err != nil {
		return err
	}
	b.add(p.Name, "peers.starts", float64(done.Load())/took.Seconds())
	b.add(p.Name, "peers.starts.cpu", (after-before).Seconds()/float64(done.Load()))
	if err := pause.For(ctx, quiet); err != nil {
		return err
	}
	return b.peerMemory(p, "peers.memory.runs")
}

// peerLines has one reader follow 100,000 short lines.
func peerLines(ctx context.Context, b *bench, p *measuredPeer) error {
	const lines = 100_000
	before, err := p.cpu(false)
	if err != nil {
		return err
	}
	n := 0
	for end := time.Now().Add(2 * time.Second); n < 2 || n < b.pick(20, 5) && time.Now().Before(end); n++ {
		check := peers.NewCheck(lines)
		messages := 0
		began := time.Now()
		j, err := p.Start(ctx, "sh", "-c", "exec "+numbers(lines))
		if err != nil {
			return err
		}
		if _, err := j.Reader(true).Follow(ctx, func(chunk []byte) {
			messages++
			check.Write(chunk)
		}); err != nil {
			return err
		}
		b.addTime(p.Name, "peers.lines", time.Since(began))
		b.add(p.Name, "peers.lines.messages", float64(messages))
		b.add(p.Name, "peers.lines.lost", float64(check.Loss().Lost)/lines)
	}
	after, err := p.cpu(false)
	if err != nil {
		return err
	}
	b.add(p.Name, "peers.lines.cpu", (after-before).Seconds()/float64(n))
	return nil
}

// filler is a shell command that writes n bytes without a newline.
func filler(n int) string { return fmt.Sprintf(`head -c %d /dev/zero | tr '\0' x`, n) }

// peerBulk has one reader follow a lot of output.
func peerBulk(ctx context.Context, b *bench, p *measuredPeer) error {
	n := b.pick(256<<20, 32<<20)
	var first time.Duration
	got := 0
	began := time.Now()
	j, err := p.Start(ctx, "sh", "-c", filler(n))
	if err != nil {
		return err
	}
	if _, err := j.Reader(true).Follow(ctx, func(chunk []byte) {
		if got == 0 {
			first = time.Since(began)
		}
		got += len(chunk)
	}); err != nil {
		return err
	}
	b.addTime(p.Name, "peers.first", first)
	b.add(p.Name, "peers.bulk", float64(got)/time.Since(began).Seconds())
	b.add(p.Name, "peers.bulk.lost", 1-float64(got)/float64(n))
	return nil
}

// peerReaders has many readers follow the output of one command, each with a
// connection of its own. All are attached before the output begins.
func peerReaders(readers int) func(ctx context.Context, b *bench, p *measuredPeer) error {
	return func(ctx context.Context, b *bench, p *measuredPeer) error {
		if b.quick && readers > 100 {
			return nil
		}
		metric := fmt.Sprintf("peers.readers.%d", readers)
		n := b.pick(1<<30, 64<<20) / readers
		gate := filepath.Join(p.dir, metric)
		// A reader that has received a newline is attached.
		j, err := p.Start(ctx, "sh", "-c", `while ! [ -e "$0" ]; do echo; sleep 0.05; done; `+filler(n), gate)
		if err != nil {
			return err
		}
		open := func() error { return os.WriteFile(gate, nil, 0o600) }
		defer open() // the command ends, whatever happens
		ctx, cancel := context.WithCancel(ctx)
		defer cancel() // of the readers that are left
		var (
			wg       sync.WaitGroup
			attached atomic.Int64
			got      atomic.Int64
			failed   = make([]error, readers)
		)
		for i := range readers {
			wg.Go(func() {
				r, here := j.Reader(false), false
				_, failed[i] = r.Follow(ctx, func(chunk []byte) {
					if !here {
						here = true
						attached.Add(1)
					}
					got.Add(int64(len(chunk) - bytes.Count(chunk, []byte{'\n'})))
				})
			})
		}
		over := make(chan struct{})
		go func() { wg.Wait(); close(over) }()
		for limit := time.Now().Add(10 * time.Second); attached.Load() < int64(readers); {
			select {
			case <-over:
				return cmp.Or(failed...)
			case <-time.After(5 * time.Millisecond):
			}
			if attached.Load() == 0 && time.Now().After(limit) {
				return fmt.Errorf("output arrives only when the command ends: %w", peers.ErrCannot)
			}
		}
		began := time.Now()
		if err := open(); err != nil {
			return err
		}
		var peak int64
		for ended := false; !ended; {
			n, err := p.memory()
			if err != nil {
				return err
			}
			peak = max(peak, n)
			select {
			case <-over:
				ended = true
			case <-time.After(5 * time.Millisecond):
			}
		}
		took := time.Since(began)
		if err := cmp.Or(failed...); err != nil {
			return err
		}
		b.add(p.Name, metric, float64(got.Load())/took.Seconds())
		b.add(p.Name, metric+".lost", 1-float64(got.Load())/float64(n*readers))
		b.add(p.Name, metric+".memory", float64(peak))
		return nil
	}
}

// unique returns an argument of sleep that no other process has.
func unique() string { return fmt.Sprintf("1000.%09d", time.Now().UnixNano()%1e9) }

// await polls until the number of processes with an argument is right, and
// returns it.
func await(ctx context.Context, arg string, right func(n int) bool, limit time.Duration) int {
	for end := time.Now().Add(limit); ; {
		n := len(peers.WithArgument(arg))
		if right(n) || ctx.Err() != nil || time.Now().After(end) {
			return n
		}
		time.Sleep(time.Millisecond)
	}
}

// peerLive starts commands that stay alive, one at a time, and kills them, one at
// a time. The clock stops when the processes exist and when they are gone.
func peerLive(ctx context.Context, b *bench, p *measuredPeer) error {
	arg := unique()
	var jobs []peers.Job
	began := time.Now()
	for end := began.Add(8 * time.Second); len(jobs) < b.pick(50, 20) && time.Now().Before(end); {
		j, err := p.Start(ctx, "sleep", arg)
		if err != nil {
			return err
		}
		jobs = append(jobs, j)
	}
	if n := await(ctx, arg, func(n int) bool { return n == len(jobs) }, 15*time.Second); n != len(jobs) {
		return fmt.Errorf("%d of %d commands run at once", n, len(jobs))
	}
	b.add(p.Name, "peers.live.starts", float64(len(jobs))/time.Since(began).Seconds())
	began = time.Now()
	for _, j := range jobs {
		if err := j.Kill(ctx); err != nil {
			return err
		}
	}
	if n := await(ctx, arg, func(n int) bool { return n == 0 }, 5*time.Second); n > 0 {
		return fmt.Errorf("%d of %d killed commands run on", n, len(jobs))
	}
	b.add(p.Name, "peers.live.stops", float64(len(jobs))/time.Since(began).Seconds())
	return nil
}

// peerLogs prints the output of a finished command with a command of the shell.
func peerLogs(ctx context.Context, b *bench, p *measuredPeer) error {
	shell, ok := p.Server.(peers.Shell)
	if !ok {
		return peers.ErrCannot
	}
	n := b.pick(100<<20, 16<<20)
	j, err := p.Start(ctx, "sh", "-c", fmt.Sprintf("yes 'one line of the output of a command' | head -c %d", n))
	if err != nil {
		return err
	}
	if _, err := j.Reader(true).Follow(ctx, func([]byte) {}); err != nil {
		return err
	}
	for range 3 {
		argv, env := shell.Logs(j)
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Env = env
		out, err := cmd.StdoutPipe()
		if err != nil {
			return err
		}
		began := time.Now()
		if err := cmd.Start(); err != nil {
			return err
		}
		buf := make([]byte, 1<<20)
		got, readErr := io.ReadAtLeast(out, buf, 1)
		first := time.Since(began)
		rest, copyErr := io.CopyBuffer(struct{ io.Writer }{io.Discard}, out, buf)
		if err := errors.Join(readErr, copyErr, cmd.Wait()); err != nil {
			return err
		}
		if got+int(rest) < n {
			return fmt.Errorf("printed %d of %d bytes", got+int(rest), n)
		}
		b.addTime(p.Name, "peers.logs.first", first)
		b.addTime(p.Name, "peers.logs", time.Since(began))
	}
	return nil
}
