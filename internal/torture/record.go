package torture

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math/rand/v2"
)

// A record is, with all numbers little-endian:
//
//	magic     4 bytes
//	run       4 bytes
//	producer  1 byte    0 is the leader
//	stream    1 byte    index in the streams of the plan
//	kind      1 byte
//	zero      1 byte
//	number    4 bytes   1, 2, 3 … for each producer and stream
//	arg       4 bytes   number of the answered input
//	length    4 bytes   of the payload
//	checksum  4 bytes   CRC32C of all other bytes
//	payload
//
// Payloads are derived from the seed of the run, so both sides know them.
type record struct {
	run      uint32
	producer uint8
	stream   uint8
	kind     uint8
	number   uint32
	arg      uint32
	payload  []byte
}

const headerLen = 28

// The kinds of record.
const (
	kindData  = 1
	kindReady = 2 // the worker reads its input from now on
	kindEcho  = 3 // input number arg arrived and was correct
	kindBad   = 4 // the input after arg was not correct
	kindInput = 5 // on standard input
)

// inputProducer is the producer of input records.
const inputProducer = 200

var (
	magic      = []byte{0xf5, 'S', 'p', 0x0a} // contains a newline, which terminals translate
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

var (
	errShort   = errors.New("incomplete record")
	errMagic   = errors.New("not the start of a record")
	errDamaged = errors.New("checksum mismatch")
)

// appendRecord appends the encoded record.
func appendRecord(b []byte, r *record) []byte {
	start := len(b)
	b = append(b, magic...)
	b = binary.LittleEndian.AppendUint32(b, r.run)
	b = append(b, r.producer, r.stream, r.kind, 0)
	b = binary.LittleEndian.AppendUint32(b, r.number)
	b = binary.LittleEndian.AppendUint32(b, r.arg)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(r.payload)))
	sum := crc32.Update(crc32.Checksum(b[start:], castagnoli), castagnoli, r.payload)
	b = binary.LittleEndian.AppendUint32(b, sum)
	return append(b, r.payload...)
}

// maxPayload limits how many bytes a damaged length can make the reader wait
// for.
const maxPayload = 1 << 20

// parseRecord reads the record at the beginning of b and returns its length.
// The payload points into b.
func parseRecord(b []byte) (r record, n int, err error) {
	if m := min(len(b), len(magic)); !bytes.Equal(b[:m], magic[:m]) {
		return r, 0, errMagic
	}
	if len(b) < headerLen {
		return r, 0, errShort
	}
	size := binary.LittleEndian.Uint32(b[20:])
	if size > maxPayload {
		return r, 0, errDamaged
	}
	n = headerLen + int(size)
	if len(b) < n {
		return r, 0, errShort
	}
	r = record{
		run: binary.LittleEndian.Uint32(b[4:]), producer: b[8], stream: b[9], kind: b[10],
		number: binary.LittleEndian.Uint32(b[12:]), arg: binary.LittleEndian.Uint32(b[16:]),
		payload: b[headerLen:n],
	}
	sum := crc32.Update(crc32.Checksum(b[:24], castagnoli), castagnoli, r.payload)
	if sum != binary.LittleEndian.Uint32(b[24:]) {
		return r, n, errDamaged
	}
	return r, n, nil
}

// payload appends the payload of a record.
func (p *Plan) payload(b []byte, producer, stream uint8, number uint32) []byte {
	r := rand.NewPCG(p.Seed, uint64(producer)<<40|uint64(stream)<<32|uint64(number))
	n := int(r.Uint64() % uint64(p.Payload+1))
	for n >= 8 {
		b = binary.LittleEndian.AppendUint64(b, r.Uint64())
		n -= 8
	}
	for v := r.Uint64(); n > 0; n-- {
		b = append(b, byte(v))
		v >>= 8
	}
	return b
}

// input is the record that a client writes to an echoing worker.
func (p *Plan) input(number uint32) []byte {
	r := record{run: p.Run, producer: inputProducer, kind: kindInput, number: number}
	r.payload = p.payload(nil, r.producer, 0, number)
	return appendRecord(nil, &r)
}
