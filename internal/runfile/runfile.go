// Package runfile is the format of a finished run in one file: its spec, its
// description, its events and its blobs.
//
// A file is the magic and then sections. A section is a kind (one byte), the
// size of its content (four bytes, little-endian), a CRC32C of both and the
// content (four bytes), and the content:
//
//	H  JSON: the version of the format and of the program
//	S  JSON: the spec of the run, as far as it is known, without its environment
//	I  JSON: the description of the run
//	E  records of consecutive events, in the format of package record; many times
//	B  JSON: a blob, whose content follows
//	C  a part of that content; many times
//	Z  JSON: the numbers of events and blobs, and the SHA-256 of everything before
//	   this section; the last one
//
// A reader skips kinds that are lowercase letters and refuses other unknown
// ones, so that a later version can add both.
package runfile

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

const magic = "SPOOLRUN"

// Version is the version of the format that this package writes. It reads this
// one and all earlier ones.
const Version = 1

// The kinds of sections.
const (
	kindHeader = 'H'
	kindSpec   = 'S'
	kindInfo   = 'I'
	kindEvents = 'E'
	kindBlob   = 'B'
	kindChunk  = 'C'
	kindEnd    = 'Z'
)

const (
	sectionHeader = 9 // bytes before the content
	// maxSection is the largest content: one record of the largest event.
	maxSection = record.MaxSize
	// batchBytes is how many bytes of records a section has, unless one record
	// is larger.
	batchBytes = 256 << 10
	chunkBytes = 1 << 20
	// maxJSON is the largest content of a section that is JSON.
	maxJSON = 4 << 20
)

// ErrDamaged means that the bytes of a file are not those that were written.
var ErrDamaged = errors.New("the file is damaged")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// header is the content of the first section.
type header struct {
	Format  int       `json:"format"`
	Program string    `json:"program,omitempty"`
	Created time.Time `json:"created,omitzero"`
}

// trailer is the content of the last section.
type trailer struct {
	Events uint64 `json:"events"`
	Blobs  uint64 `json:"blobs"`
	SHA256 string `json:"sha256"`
}

// SpecOf returns the spec of a run as far as its description tells it. The
// environment of a run is never stored.
func SpecOf(info *spool.Info) spool.Spec {
	spec := spool.Spec{ID: info.ID, Name: info.Name, Engine: info.Engine, Labels: info.Labels, Argv: info.Argv, Cwd: info.Cwd}
	if info.TTY {
		spec.TTY = &spool.Size{}
	}
	return spec
}

// appendSection appends a section.
func appendSection(dst []byte, kind byte, content []byte) []byte {
	at := len(dst)
	dst = append(dst, kind)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(content)))
	sum := crc32.Update(crc32.Checksum(dst[at:], castagnoli), castagnoli, content)
	dst = binary.LittleEndian.AppendUint32(dst, sum)
	return append(dst, content...)
}

// readSection reads one section: the bytes before its content, and its content
// into buf, which it may enlarge. Both are valid until the next call.
func readSection(r io.Reader, buf []byte) (head [sectionHeader]byte, content []byte, err error) {
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return head, buf, cutOff(err)
	}
	size := binary.LittleEndian.Uint32(head[1:])
	if size > maxSection {
		return head, buf, fmt.Errorf("%w: a section of %d bytes", ErrDamaged, size)
	}
	// The size may be wrong: allocate what is there.
	buf = buf[:0]
	for len(buf) < int(size) {
		n := min(int(size)-len(buf), chunkBytes)
		at := len(buf)
		buf = append(buf, make([]byte, n)...)
		if _, err := io.ReadFull(r, buf[at:]); err != nil {
			return head, buf, cutOff(err)
		}
	}
	sum := crc32.Update(crc32.Checksum(head[:5], castagnoli), castagnoli, buf)
	if want := binary.LittleEndian.Uint32(head[5:]); sum != want {
		return head, buf, fmt.Errorf("%w: a section of kind %q has the checksum %08x, want %08x", ErrDamaged, head[0], sum, want)
	}
	return head, buf, nil
}

func cutOff(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w: it is cut off", ErrDamaged)
	}
	return err
}

func decodeJSON(content []byte, what string, v any) error {
	if len(content) > maxJSON {
		return fmt.Errorf("%w: its %s has %d bytes", ErrDamaged, what, len(content))
	}
	if err := json.Unmarshal(content, v); err != nil {
		return fmt.Errorf("%w: its %s does not decode: %w", ErrDamaged, what, err)
	}
	return nil
}
