// Package record holds every encoding of events, descriptions of runs and
// starts that is not plain JSON: the records of segment files and of the binary
// wire, and the messages between a server and its keeper. The JSON forms of
// events and descriptions are methods of their types in package spool. One test
// fills every field of these types and takes them through each encoding.
package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/python"
)

// A record is the binary form of an event, the same in a segment file and on
// the binary wire, so that stored bytes can be sent as they are:
//
//	0   u32  size of the whole record
//	4   u32  CRC32C of everything after it
//	8   u64  seq
//	16  i64  time, Unix nanoseconds
//	24  u8   kind
//	25  u8   stream
//	26  u16  zero
//	28  u32  length of Data
//	32  u64  turn
//	40       Data, then Bytes
//
// All numbers are little-endian. The run is not part of a record: a file or a
// stream of records belongs to one run.
const (
	// HeaderSize is the size of what comes before Data and Bytes.
	HeaderSize = 40
	// MaxSize bounds a record; a larger size is corruption.
	MaxSize = HeaderSize + spool.MaxEventBytes
)

// Errors of [Decode] and [Size].
var (
	ErrShort   = errors.New("record is cut short")
	ErrCorrupt = errors.New("record is corrupt")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// The codes of kinds and streams are part of the format: only ever append.
var (
	kindNames = []spool.Kind{
		"", spool.KindStarted, spool.KindInput, spool.KindOutput, python.KindDisplay, python.KindResult,
		python.KindException, spool.KindAsk, agent.KindAction, agent.KindMessage, agent.KindReasoning,
		agent.KindPlan, agent.KindUsage, agent.KindRetry, spool.KindNotice, spool.KindDone,
		spool.KindTruncated, spool.KindExited, spool.KindFailed, spool.KindClosed, spool.KindResized,
	}
	streamNames = []spool.Stream{"", spool.Stdout, spool.Stderr, spool.PTY}

	kindCodes   = codes(kindNames)
	streamCodes = codes(streamNames)
)

func codes[T comparable](names []T) map[T]byte {
	m := make(map[T]byte, len(names))
	for i, n := range names {
		m[n] = byte(i)
	}
	return m
}

// AppendHeader appends the header of the event's record. The record is
// complete once Data and Bytes follow it, which lets a writer gather them
// without a copy.
func AppendHeader(dst []byte, e *spool.Event) ([]byte, error) {
	kind, ok := kindCodes[e.Kind]
	if !ok {
		return dst, fmt.Errorf("encode event %d: unknown kind %q", e.Seq, e.Kind)
	}
	stream, ok := streamCodes[e.Stream]
	if !ok {
		return dst, fmt.Errorf("encode event %d: unknown stream %q", e.Seq, e.Stream)
	}
	if e.Size() > spool.MaxEventBytes {
		return dst, fmt.Errorf("encode event %d: %d bytes exceed %d", e.Seq, e.Size(), spool.MaxEventBytes)
	}
	at := len(dst)
	dst = append(dst, make([]byte, HeaderSize)...)
	h := dst[at:]
	binary.LittleEndian.PutUint32(h[0:], uint32(HeaderSize+e.Size()))
	binary.LittleEndian.PutUint64(h[8:], uint64(e.Seq))
	binary.LittleEndian.PutUint64(h[16:], uint64(e.Time.UnixNano()))
	h[24], h[25] = kind, stream
	binary.LittleEndian.PutUint32(h[28:], uint32(len(e.Data)))
	binary.LittleEndian.PutUint64(h[32:], uint64(e.Turn))
	sum := crc32.Update(0, castagnoli, h[8:])
	sum = crc32.Update(sum, castagnoli, e.Data)
	sum = crc32.Update(sum, castagnoli, e.Bytes)
	binary.LittleEndian.PutUint32(h[4:], sum)
	return dst, nil
}

// Append appends the whole record of the event.
func Append(dst []byte, e *spool.Event) ([]byte, error) {
	dst, err := AppendHeader(dst, e)
	if err != nil {
		return dst, err
	}
	dst = append(dst, e.Data...)
	return append(dst, e.Bytes...), nil
}

// Size returns the size of the record that b begins with, as its header
// claims. It needs only the first four bytes.
func Size(b []byte) (int, error) {
	if len(b) < 4 {
		return 0, ErrShort
	}
	n := binary.LittleEndian.Uint32(b)
	if n < HeaderSize || n > MaxSize {
		return 0, fmt.Errorf("%w: size %d", ErrCorrupt, n)
	}
	return int(n), nil
}

// Decode reads the record that b begins with and returns its size. The
// event's Bytes and Data point into b.
func Decode(b []byte) (spool.Event, int, error) {
	n, err := Size(b)
	if err != nil {
		return spool.Event{}, 0, err
	}
	if len(b) < n {
		return spool.Event{}, 0, ErrShort
	}
	if got, want := crc32.Checksum(b[8:n], castagnoli), binary.LittleEndian.Uint32(b[4:]); got != want {
		return spool.Event{}, 0, fmt.Errorf("%w: checksum %08x, want %08x", ErrCorrupt, got, want)
	}
	return Peek(b)
}

// Peek is [Decode] without the checksum.
func Peek(b []byte) (spool.Event, int, error) {
	n, err := Size(b)
	if err != nil {
		return spool.Event{}, 0, err
	}
	if len(b) < n {
		return spool.Event{}, 0, ErrShort
	}
	b = b[:n:n]
	data := int(binary.LittleEndian.Uint32(b[28:]))
	if data > n-HeaderSize {
		return spool.Event{}, 0, fmt.Errorf("%w: data of %d bytes in a record of %d", ErrCorrupt, data, n)
	}
	e := spool.Event{
		Seq:  spool.Seq(binary.LittleEndian.Uint64(b[8:])),
		Time: time.Unix(0, int64(binary.LittleEndian.Uint64(b[16:]))).UTC(),
		Turn: spool.Seq(binary.LittleEndian.Uint64(b[32:])),
	}
	if int(b[24]) < len(kindNames) {
		e.Kind = kindNames[b[24]]
	} else if b[24] != descriptionKind { // written by a later version: keep it, unnamed
		e.Kind = spool.Kind(fmt.Sprintf("kind-%d", b[24]))
	}
	if int(b[25]) < len(streamNames) {
		e.Stream = streamNames[b[25]]
	} else {
		e.Stream = spool.Stream(fmt.Sprintf("stream-%d", b[25]))
	}
	if data > 0 {
		e.Data = b[HeaderSize : HeaderSize+data : HeaderSize+data]
	}
	if HeaderSize+data < n {
		e.Bytes = b[HeaderSize+data:]
	}
	return e, n, nil
}
