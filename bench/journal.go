package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/store"
)

// measureJournal appends events to the durable log of a run and reads them back
// from the start, for large and for small events.
func measureJournal(ctx context.Context, b *bench) (err error) {
	st, err := store.Open(filepath.Join(b.dir, "journal"), store.Options{Sync: store.SyncNone})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	for _, of := range []struct {
		metric        string
		size, howMany int
	}{
		{"journal.64k", 64 << 10, b.pick(4096, 2048)},
		{"journal.100", 100, b.pick(200_000, 100_000)},
	} {
		if err := b.journal(st, of.metric, of.size, of.howMany); err != nil {
			return fmt.Errorf("%s: %w", of.metric, err)
		}
	}
	return nil
}

// journal appends and reads back howMany events of a size.
func (b *bench) journal(st *store.Store, metric string, size, howMany int) (err error) {
	info := spool.Info{ID: spool.RunID(fmt.Sprintf("bench%dx%d", size, time.Now().UnixNano())), Engine: spool.EngineProcess, Created: time.Now()}
	j, err := st.Create(info)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, j.Close(), st.Remove(info.ID)) }()
	payload := make([]byte, size)
	began := time.Now()
	for i := range howMany {
		e := spool.Event{Seq: spool.Seq(i + 1), Time: began, Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: payload}
		if err := j.Append(&e); err != nil {
			return err
		}
	}
	took := time.Since(began)
	b.add(subjectSpool, metric+".append", float64(howMany)/took.Seconds())
	b.add(subjectSpool, metric+".append.rate", float64(howMany)*float64(size)/took.Seconds())

	began = time.Now()
	var page []spool.Event
	var after spool.Seq
	for int(after) < howMany {
		if page, err = j.Read(page[:0], after, 256<<10); err != nil {
			return err
		}
		for i := range page {
			if page[i].Seq != after+1 || len(page[i].Bytes) != size {
				return fmt.Errorf("read event %d of %d bytes after %d", page[i].Seq, len(page[i].Bytes), after)
			}
			after++
		}
	}
	took = time.Since(began)
	b.add(subjectSpool, metric+".replay", float64(howMany)/took.Seconds())
	b.add(subjectSpool, metric+".replay.rate", float64(howMany)*float64(size)/took.Seconds())
	return nil
}
