package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/logtext"
	"github.com/spool-run/spool/internal/store"
)

const (
	// longRun is the finished run with a log of 1 GiB.
	longRun = "long"
	// longEvent is the size of its events: those of a program that writes as fast as
	// Spool reads.
	longEvent = 256 << 10
)

// longLog makes sure that there is a long log, and returns the home of a server that
// has it.
func (b *bench) longLog() (string, error) {
	home := filepath.Join(b.dir, "http-log")
	if b.web.log {
		return home, nil
	}
	text := logtext.New(1).Append(nil, logBytes)[:logBytes]
	err := withStore(filepath.Join(home, "spool"), func(st *store.Store) error {
		return writeLong(st, longRun, text, b.bulkBytes())
	})
	b.web.log = err == nil
	return home, err
}

// writeLong writes a finished run with n bytes of output: the text again and again, and
// one rare word near the end.
func writeLong(st *store.Store, id spool.RunID, text []byte, n int64) error {
	now := time.Now()
	info := spool.Info{ID: id, Created: now, Engine: spool.EngineProcess, State: spool.StateRunning}
	j, err := st.Create(info)
	if err != nil {
		return err
	}
	seq, count := spool.Seq(1), n/longEvent
	for ; int64(seq) <= count; seq++ {
		at := int64(seq-1) * longEvent % int64(len(text))
		part := text[at : at+longEvent]
		if int64(seq) == count-2 {
			part = bytes.Clone(part)
			copy(part[longEvent/2:], needle)
		}
		e := spool.Event{Seq: seq, Time: now, Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: part}
		if err := j.Append(&e); err != nil {
			return errors.Join(err, j.Close())
		}
	}
	info.State, info.Ended, info.Outcome = spool.StateClosed, now, &spool.Outcome{Kind: spool.Exited}
	return errors.Join(j.Append(&spool.Event{Seq: seq, Time: now, Kind: spool.KindClosed}), j.Seal(info), j.Close())
}

// httpBulk has one reader after the other read the long log: of server-sent events, of
// lines, and over the WebSocket; and one read as much from a process of codex.
func httpBulk(ctx context.Context, b *bench) error {
	home, err := b.longLog()
	if err != nil {
		return err
	}
	n := b.bulkBytes()
	err = b.withServe(ctx, home, func(s *webServer) error {
		for _, of := range []struct {
			metric string
			read   func(context.Context, *webServer) (int64, error)
		}{
			{"http.sse", (&streamCounter{form: formEvents, prefix: "id: "}).read},
			{"http.ndjson", (&streamCounter{form: formLines, prefix: `{"run":`}).read},
			{"http.rpc", readOverRPC},
		} {
			before, err := s.cpu()
			if err != nil {
				return err
			}
			began := time.Now()
			events, err := of.read(ctx, s)
			took := time.Since(began)
			if want := n/longEvent + 1; err == nil && events != want {
				err = fmt.Errorf("%s: %d events, want %d", of.metric, events, want)
			}
			after, cpuErr := s.cpu()
			if err := errors.Join(err, cpuErr); err != nil {
				return err
			}
			b.add(subjectSpool, of.metric+".rate", float64(n)/took.Seconds())
			b.add(subjectSpool, of.metric+".cpu", (after-before).Seconds()*gibibyte/float64(n))
		}
		return nil
	})
	if err != nil {
		return err
	}
	codex, err := b.reference(ctx)
	if err != nil {
		return err
	}
	return measureBulk(ctx, b, codex)
}

// streamCounter counts the events of a stream by the lines that begin with a prefix. It
// does as little as it can: the client is not what is measured.
type streamCounter struct{ form, prefix string }

func (c *streamCounter) read(ctx context.Context, s *webServer) (events int64, err error) {
	resp, err := s.Do(ctx, "GET", eventsPath(longRun), c.form, nil)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	prefix, begins := []byte(c.prefix), true
	for r := bufio.NewReaderSize(resp.Body, 256<<10); ; {
		line, err := r.ReadSlice('\n')
		if begins && bytes.HasPrefix(line, prefix) {
			events++
		}
		switch {
		case err == nil:
			begins = true
		case errors.Is(err, bufio.ErrBufferFull):
			begins = false
		default: // the end
			return events, ctx.Err()
		}
	}
}

// readOverRPC reads the long log through package client.
func readOverRPC(ctx context.Context, s *webServer) (events int64, err error) {
	c, err := s.dial(ctx)
	if err != nil {
		return 0, err
	}
	defer c.Close()
	for _, err := range spool.Attach(c, longRun).Stream(ctx, 0) {
		if err != nil {
			return events, err
		}
		events++
	}
	return events, nil
}
