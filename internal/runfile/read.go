package runfile

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// Sink takes what [Read] reads. Nothing is certain before Read has returned
// without an error.
type Sink interface {
	// Begin is called first.
	Begin(spec spool.Spec, info spool.Info) error
	// Event takes the next event, which is valid until Event returns. The
	// seqs grow; a truncated event stands for those that are left out.
	Event(e *spool.Event) error
	// Blob takes a blob. It must read all of the content, whose digest Read
	// checks.
	Blob(d spool.Digest, content io.Reader) error
}

// Read reads a file that [Write] wrote and checks all of it. The error is
// [ErrDamaged] if the file is not as it was written, and [spool.ErrUnsupported]
// if a later version wrote it. The memory it needs does not grow with the file.
func Read(r io.Reader, sink Sink) error {
	a := &reader{sum: sha256.New(), sink: sink}
	a.r = bufio.NewReaderSize(r, 64<<10)
	if err := a.begin(); err != nil {
		return err
	}
	for {
		if !a.peeked {
			if err := a.next(); err != nil {
				return err
			}
		}
		a.peeked = false
		switch a.kind {
		case kindEvents:
			if err := a.events(); err != nil {
				return err
			}
		case kindBlob:
			if err := a.blob(); err != nil {
				return err
			}
		case kindEnd:
			return a.end()
		default:
			return fmt.Errorf("%w: a section of kind %q is misplaced", ErrDamaged, a.kind)
		}
	}
}

type reader struct {
	r    *bufio.Reader
	sum  hash.Hash // of all sections before the present one
	sink Sink

	kind    byte
	content []byte
	peeked  bool // the present section was read ahead

	info         spool.Info
	last         spool.Seq
	closed       bool   // the closed event was read
	count, blobs uint64 // events and blobs so far
}

// next reads a section, after those that it may skip.
func (a *reader) next() error {
	for {
		head, content, err := readSection(a.r, a.content)
		a.content = content
		if err != nil {
			return err
		}
		kind := head[0]
		a.kind = kind
		if kind == kindEnd {
			return nil // it has the checksum of what was before it
		}
		a.sum.Write(head[:]) // never fails
		a.sum.Write(content)
		switch {
		case kind >= 'a' && kind <= 'z':
			continue
		case kind == kindHeader, kind == kindSpec, kind == kindInfo, kind == kindEvents, kind == kindBlob, kind == kindChunk:
			return nil
		case kind >= 'A' && kind <= 'Z':
			return fmt.Errorf("%w: it has a section of kind %q, which a later version of spool wrote", spool.ErrUnsupported, kind)
		}
		return fmt.Errorf("%w: a section of kind %q", ErrDamaged, kind)
	}
}

// begin reads the magic and the sections that every file begins with.
func (a *reader) begin() error {
	start := make([]byte, len(magic))
	if _, err := io.ReadFull(a.r, start); err != nil || string(start) != magic {
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		return fmt.Errorf("%w: it does not begin with %q; is it a file of \"spool export\"?", ErrDamaged, magic)
	}
	a.sum.Write(start)
	var h header
	var spec spool.Spec
	for _, part := range []struct {
		kind byte
		what string
		into any
	}{{kindHeader, "header", &h}, {kindSpec, "spec", &spec}, {kindInfo, "description", &a.info}} {
		if err := a.next(); err != nil {
			return err
		}
		if a.kind != part.kind {
			return fmt.Errorf("%w: a section of kind %q is where the %s should be", ErrDamaged, a.kind, part.what)
		}
		if err := decodeJSON(a.content, part.what, part.into); err != nil {
			return err
		}
		if h.Format > Version {
			return fmt.Errorf("%w: it has format %d and this program reads up to %d; %s wrote it", spool.ErrUnsupported, h.Format, Version, h.Program)
		}
	}
	if h.Format < 1 {
		return fmt.Errorf("%w: it has format %d", ErrDamaged, h.Format)
	}
	if err := a.info.ID.Check(); err != nil {
		return fmt.Errorf("%w: %w", ErrDamaged, err)
	}
	if a.info.State != spool.StateClosed {
		return fmt.Errorf("%w: it is of a run in state %q", ErrDamaged, a.info.State)
	}
	return a.sink.Begin(spec, a.info)
}

// events hands on the events of a section.
func (a *reader) events() error {
	for b := a.content; len(b) > 0; {
		e, n, err := record.Decode(b)
		if err != nil {
			return fmt.Errorf("%w: event after %d: %w", ErrDamaged, a.last, err)
		}
		b = b[n:]
		switch {
		case a.closed:
			return fmt.Errorf("%w: event %d comes after the end of the log", ErrDamaged, e.Seq)
		case e.Seq <= a.last, e.Seq != a.last+1 && e.Kind != spool.KindTruncated:
			return fmt.Errorf("%w: event %d comes after event %d", ErrDamaged, e.Seq, a.last)
		}
		e.Run, a.last = a.info.ID, e.Seq
		a.closed = e.Kind == spool.KindClosed
		a.count++
		if err := a.sink.Event(&e); err != nil {
			return err
		}
	}
	return nil
}

// blob hands on a blob.
func (a *reader) blob() error {
	var h blobHeader
	if err := decodeJSON(a.content, "blob", &h); err != nil {
		return err
	}
	if !digestPattern().MatchString(string(h.Digest)) || len(h.Digest) != len("sha256:")+64 {
		return fmt.Errorf("%w: %.100q is no digest", ErrDamaged, h.Digest)
	}
	content := &blobReader{reader: a, sum: sha256.New()}
	if err := a.sink.Blob(h.Digest, content); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, content); err != nil {
		return err
	}
	if got := "sha256:" + hex.EncodeToString(content.sum.Sum(nil)); got != string(h.Digest) {
		return fmt.Errorf("%w: blob %s has the content of %s", ErrDamaged, h.Digest, got)
	}
	a.blobs++
	return nil
}

// blobReader reads the chunks of a blob, up to the next section of another kind.
type blobReader struct {
	reader *reader
	sum    hash.Hash
	chunk  []byte
	err    error
}

// Read implements [io.Reader].
func (b *blobReader) Read(p []byte) (int, error) {
	for len(b.chunk) == 0 {
		if b.err != nil {
			return 0, b.err
		}
		if b.err = b.reader.next(); b.err != nil {
			return 0, b.err
		}
		if b.reader.kind != kindChunk {
			b.reader.peeked, b.err = true, io.EOF
			return 0, io.EOF
		}
		b.chunk = b.reader.content
	}
	n := copy(p, b.chunk)
	b.sum.Write(p[:n])
	b.chunk = b.chunk[n:]
	return n, nil
}

// end checks the last section, and that nothing follows it.
func (a *reader) end() error {
	var t trailer
	if err := decodeJSON(a.content, "end", &t); err != nil {
		return err
	}
	switch sum := hex.EncodeToString(a.sum.Sum(nil)); {
	case t.SHA256 != sum:
		return fmt.Errorf("%w: its SHA-256 is %s, want %s", ErrDamaged, sum, t.SHA256)
	case t.Events != a.count:
		return fmt.Errorf("%w: it has %d events, want %d", ErrDamaged, a.count, t.Events)
	case t.Blobs != a.blobs:
		return fmt.Errorf("%w: it has %d blobs, want %d", ErrDamaged, a.blobs, t.Blobs)
	case a.last != a.info.Last:
		return fmt.Errorf("%w: its log ends with event %d, want %d", ErrDamaged, a.last, a.info.Last)
	}
	if _, err := a.r.ReadByte(); !errors.Is(err, io.EOF) {
		if err != nil {
			return err
		}
		return fmt.Errorf("%w: bytes follow its end", ErrDamaged)
	}
	return nil
}
