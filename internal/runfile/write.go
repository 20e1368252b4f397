package runfile

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/lazyregexp"
	"github.com/spool-run/spool/internal/record"
)

// Write writes a finished run to w. Program names the program that writes, with
// its version. The error is [spool.ErrBusy] if the run has not finished.
func Write(ctx context.Context, w io.Writer, run *spool.Run, program string) error {
	info, err := run.Info(ctx)
	if err != nil {
		return err
	}
	if info.State != spool.StateClosed {
		return fmt.Errorf("run %s: %w: it has not ended", info.ID, spool.ErrBusy)
	}
	a := &writer{w: w, sum: sha256.New(), run: run}
	a.write([]byte(magic))
	a.json(kindHeader, header{Format: Version, Program: program, Created: time.Now().UTC()})
	a.json(kindSpec, SpecOf(&info))
	a.section(kindInfo, info.AppendJSON(nil))
	if a.err != nil {
		return a.err
	}
	if err := a.events(ctx, info.Last); err != nil {
		return err
	}
	for _, d := range a.digests {
		if err := a.blob(ctx, d); err != nil {
			return err
		}
	}
	a.json(kindEnd, trailer{Events: a.written, Blobs: a.blobs, SHA256: hex.EncodeToString(a.sum.Sum(nil))})
	return a.err
}

// writer writes sections and keeps the first error.
type writer struct {
	w   io.Writer
	sum hash.Hash // of all bytes so far
	run *spool.Run
	err error
	buf []byte

	written uint64 // events
	blobs   uint64
	digests []spool.Digest // in the order of their first use
	known   map[spool.Digest]bool
}

func (a *writer) write(b []byte) {
	if a.err != nil {
		return
	}
	a.sum.Write(b) // never fails
	_, a.err = a.w.Write(b)
}

func (a *writer) section(kind byte, content []byte) {
	a.buf = appendSection(a.buf[:0], kind, content)
	a.write(a.buf)
}

func (a *writer) json(kind byte, v any) {
	content, err := json.Marshal(v)
	if err != nil && a.err == nil {
		a.err = err
		return
	}
	a.section(kind, content)
}

// events writes the log up to its last event.
func (a *writer) events(ctx context.Context, last spool.Seq) error {
	var batch []byte
	for after := spool.Seq(0); after < last; {
		page, err := a.run.Read(ctx, spool.Query{After: after})
		if err != nil {
			return err
		}
		if page.Failure != "" {
			return errors.New(page.Failure)
		}
		if len(page.Events) == 0 {
			return fmt.Errorf("run %s: no event after %d, of %d", a.run.ID(), after, last)
		}
		for i := range page.Events {
			e := &page.Events[i]
			if len(batch) > 0 && len(batch)+record.HeaderSize+e.Size() > batchBytes {
				a.section(kindEvents, batch)
				batch = batch[:0]
			}
			if batch, err = record.Append(batch, e); err != nil {
				return err
			}
			a.note(e)
			a.written++
		}
		after = page.Next
		if a.err != nil {
			return a.err
		}
	}
	if len(batch) > 0 {
		a.section(kindEvents, batch)
	}
	return a.err
}

var digestPattern = lazyregexp.New(`sha256:[0-9a-f]{64}`)

// note remembers the blobs to which an event may refer.
func (a *writer) note(e *spool.Event) {
	for _, text := range digestPattern().FindAll(e.Data, -1) {
		d := spool.Digest(text)
		if !a.known[d] {
			if a.known == nil {
				a.known = make(map[spool.Digest]bool)
			}
			a.known[d] = true
			a.digests = append(a.digests, d)
		}
	}
}

// blobHeader is the content of the section before a blob.
type blobHeader struct {
	Digest spool.Digest `json:"blob"`
}

// blob writes a blob, if there is one with that digest.
func (a *writer) blob(ctx context.Context, d spool.Digest) error {
	content, err := a.run.Blob(ctx, d)
	if errors.Is(err, spool.ErrNotFound) {
		return nil // text that looks like a digest, or the blob is gone
	}
	if err != nil {
		return err
	}
	a.json(kindBlob, blobHeader{d})
	chunk := make([]byte, chunkBytes)
	for a.err == nil && err == nil {
		var n int
		n, err = io.ReadFull(content, chunk)
		if n > 0 {
			a.section(kindChunk, chunk[:n])
		}
	}
	a.blobs++
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return errors.Join(a.err, err, content.Close())
}
