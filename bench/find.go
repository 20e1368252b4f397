package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/logtext"
	"github.com/spool-run/spool/internal/store"
)

const (
	logBytes = 64 << 20 // of the log of one run
	needle   = "Xylophone42"
	// The runs whose log is read.
	rawRun        = "raw"
	compressedRun = "compressed"
)

// measureFind measures how fast finished logs are searched and read: text as programs
// log it, with one line that has a rare word, compressed as Spool compresses the logs of
// finished runs. The logs are in the page cache.
func measureFind(ctx context.Context, b *bench) (err error) {
	path, err := filepath.Abs(b.spool)
	if err != nil {
		return err
	}
	home, pair := filepath.Join(b.dir, "find"), filepath.Join(b.dir, "read")
	total := int64(b.pick(b.logs, b.logs/4)) << 20
	if _, err := os.Stat(home); errors.Is(err, os.ErrNotExist) { // the first round
		if err := b.writeLogs(ctx, home, pair, total); err != nil {
			return err
		}
	}
	srv, err := launch(ctx, path, home)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, srv.stop()) }()
	state := filepath.Join(home, "spool")
	for _, of := range []struct {
		metric string
		bytes  int64 // that are searched
		args   []string
	}{
		{"find", total, []string{"--state", state, "search", needle}},
		{"find.case", total, []string{"--state", state, "search", "--ignore-case", needle}},
		{"find.regexp", total, []string{"--state", state, "search", "--regexp", "[XY]ylophone[0-9]+"}},
		{"find.open", min(total, logBytes), []string{"--state", state, "search", "--regexp", "[W-Y]y[k-m]op?[a-h]+[n-p]+n[d-f][0-9]+", "log00000"}},
		{"find.server", total, []string{"--server", srv.url, "search", needle}},
	} {
		out, took, _, err := command(ctx, home, path, of.args...)
		if err != nil || bytes.Count(out, []byte("\n")) != 1 {
			return fmt.Errorf("spool %q found %q: %w", of.args, out, err)
		}
		b.add(subjectSpool, of.metric+".rate", float64(of.bytes)/took.Seconds())
		b.add(subjectSpool, of.metric, took.Seconds()*10e9/float64(of.bytes))
	}
	if err := b.readPair(ctx, pair); err != nil {
		return err
	}
	for range 5 {
		for _, run := range []string{rawRun, compressedRun} {
			out, took, used, err := command(ctx, home, path, "--state", pair, "logs", run)
			if err != nil || len(out) < logBytes {
				return fmt.Errorf("spool logs printed %d bytes: %w", len(out), err)
			}
			b.add(subjectSpool, "logs."+run, float64(len(out))/took.Seconds())
			b.add(subjectSpool, "logs.cpu."+run, float64(len(out))/used.Seconds())
		}
	}
	return nil
}

// command runs spool and returns what it printed, how long it took, and the processor time
// that it used.
func command(ctx context.Context, home, path string, args ...string) (out []byte, took, used time.Duration, err error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "HOME="+home, "XDG_STATE_HOME="+home, "XDG_RUNTIME_DIR="+home, "XDG_CONFIG_HOME="+home)
	var printed bytes.Buffer
	printed.Grow(logBytes + 1<<20)
	cmd.Stdout, cmd.Stderr = &printed, os.Stderr
	began := time.Now()
	if err := cmd.Run(); err != nil {
		return printed.Bytes(), 0, 0, err
	}
	return printed.Bytes(), time.Since(began), cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), nil
}

// writeLogs writes the logs of finished runs with this many bytes of output, and two
// with the same output, of which one is compressed.
func (b *bench) writeLogs(ctx context.Context, home, pair string, total int64) error {
	text := logtext.New(1).Append(nil, logBytes)[:logBytes]
	err := withStore(filepath.Join(home, "spool"), func(st *store.Store) error {
		for i := 0; total > 0; i++ {
			// The logs begin at different places of the same text.
			at := i * 7919 * 1021 % logBytes
			log := append(bytes.Clone(text[at:]), text[:at]...)
			log = log[:min(int64(len(log)), total)]
			if i == 0 {
				copy(log[len(log)/2:], needle)
			}
			total -= int64(len(log))
			id := spool.RunID(fmt.Sprintf("log%05d", i))
			if err := writeLog(st, id, log); err != nil {
				return err
			}
			if _, err := st.Compress(ctx, id, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return withStore(pair, func(st *store.Store) error {
		for _, id := range []spool.RunID{rawRun, compressedRun} {
			if err := writeLog(st, id, text); err != nil {
				return err
			}
		}
		saved, err := st.Compress(ctx, compressedRun, nil)
		b.add(subjectSpool, "compressed.part", 1-float64(saved)/logBytes)
		return err
	})
}

func withStore(dir string, f func(*store.Store) error) error {
	st, err := store.Open(dir, store.Options{Sync: store.SyncNone})
	if err != nil {
		return err
	}
	return errors.Join(f(st), st.Close())
}

// writeLog writes a finished run with this output, in events as a busy program makes
// them.
func writeLog(st *store.Store, id spool.RunID, text []byte) error {
	now := time.Now()
	info := spool.Info{ID: id, Created: now, Engine: spool.EngineProcess, State: spool.StateRunning}
	j, err := st.Create(info)
	if err != nil {
		return err
	}
	seq := spool.Seq(1)
	for ; len(text) > 0; seq++ {
		n := min(1<<10+int(seq)*7919%(16<<10), len(text))
		e := spool.Event{Seq: seq, Time: now, Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: text[:n]}
		if err := j.Append(&e); err != nil {
			return errors.Join(err, j.Close())
		}
		text = text[n:]
	}
	info.State, info.Ended, info.Outcome = spool.StateClosed, now, &spool.Outcome{}
	return errors.Join(j.Append(&spool.Event{Seq: seq, Time: now, Kind: spool.KindClosed}), j.Seal(info), j.Close())
}

// readPair reads the log that is compressed and the one that is not, in turns, as a
// reader in this process.
func (b *bench) readPair(ctx context.Context, dir string) (err error) {
	h, err := host.Open(host.Options{Dir: dir, Retention: store.Retention{Compress: -1}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, h.Close()) }()
	for range 5 {
		for _, id := range []spool.RunID{rawRun, compressedRun} {
			run := spool.Attach(h, id)
			for metric, events := range map[string]func(context.Context, spool.Seq) func(func(spool.Event, error) bool){
				"follow.": func(ctx context.Context, after spool.Seq) func(func(spool.Event, error) bool) {
					return run.Events(ctx, after)
				},
				"stream.": func(ctx context.Context, after spool.Seq) func(func(spool.Event, error) bool) {
					return run.Stream(ctx, after)
				},
			} {
				began, before, n := time.Now(), processorTime(), 0
				for e, err := range events(ctx, 0) {
					if err != nil {
						return err
					}
					n += len(e.Bytes)
				}
				if n != logBytes {
					return fmt.Errorf("read %d bytes", n)
				}
				b.add(subjectSpool, metric+string(id), float64(n)/time.Since(began).Seconds())
				b.add(subjectSpool, metric+"cpu."+string(id), float64(n)/(processorTime()-before).Seconds())
			}
		}
	}
	return nil
}
