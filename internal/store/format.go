package store

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"slices"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/eventlog"
)

// A description of the run is a record like that of an event, with seq 0 and
// a kind that no event has. Its stream says which description it is, its turn
// holds the segment's salt, and its Data is the JSON form of [spool.Info].
//
// The footer follows the final description and ends the file:
//
//	0   u32  size of the final description's record
//	4   u32  CRC32C of the rest of the footer, and of the size
//	8   u64  salt
//	16       magic
//
// The salt is a random number in the segment's first record. Without it, a
// program could print something that ends like a complete log.
const (
	segmentMagic = "SPOOLSG1"
	footerMagic  = "SPOOLEND"
	footerSize   = 24

	metaKind  = 255
	metaHead  = 1 // begins a segment
	metaNote  = 2 // anywhere in it
	metaFinal = 3 // before the footer
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// recordHead is what the header of a record says, before its checksum is known.
type recordHead struct {
	size int
	seq  spool.Seq
	meta byte // which description it is; zero for an event
	salt uint64
}

// parseHead reads the header at the start of b, which has at least
// eventlog.RecordHeader bytes.
func parseHead(b []byte) (recordHead, error) {
	size, err := eventlog.RecordSize(b)
	if err != nil {
		return recordHead{}, err
	}
	h := recordHead{size: size, seq: spool.Seq(binary.LittleEndian.Uint64(b[8:]))}
	if h.seq == 0 {
		if b[24] != metaKind || b[25] < metaHead || b[25] > metaFinal {
			return recordHead{}, fmt.Errorf("%w: seq 0", eventlog.ErrCorruptRecord)
		}
		h.meta = b[25]
		h.salt = binary.LittleEndian.Uint64(b[32:])
	}
	return h, nil
}

// appendMeta appends the record of a description.
func appendMeta(dst []byte, meta byte, salt uint64, now time.Time, info *spool.Info) ([]byte, error) {
	data := info.AppendJSON(nil)
	size := eventlog.RecordHeader + len(data)
	if size > eventlog.MaxRecord {
		return dst, fmt.Errorf("encode description: %d bytes exceed %d", len(data), spool.MaxEventBytes)
	}
	var h [eventlog.RecordHeader]byte
	binary.LittleEndian.PutUint32(h[0:], uint32(size))
	binary.LittleEndian.PutUint64(h[16:], uint64(now.UnixNano()))
	h[24], h[25] = metaKind, meta
	binary.LittleEndian.PutUint32(h[28:], uint32(len(data)))
	binary.LittleEndian.PutUint64(h[32:], salt)
	sum := crc32.Update(0, castagnoli, h[8:])
	binary.LittleEndian.PutUint32(h[4:], crc32.Update(sum, castagnoli, data))
	return append(append(dst, h[:]...), data...), nil
}

// decodeInfo reads the description in the data of a record.
func decodeInfo(data []byte, id spool.RunID) (spool.Info, error) {
	var info spool.Info
	if err := json.Unmarshal(data, &info); err != nil {
		return spool.Info{}, fmt.Errorf("decode description: %w", err)
	}
	if info.ID != id {
		return spool.Info{}, fmt.Errorf("decode description: it is of run %q", info.ID)
	}
	return info, nil
}

// appendFooter appends the footer after a final description of this size.
func appendFooter(dst []byte, size int, salt uint64) []byte {
	at := len(dst)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(size))
	dst = binary.LittleEndian.AppendUint32(dst, 0)
	dst = binary.LittleEndian.AppendUint64(dst, salt)
	dst = append(dst, footerMagic...)
	binary.LittleEndian.PutUint32(dst[at+4:], footerSum(dst[at:]))
	return dst
}

func footerSum(b []byte) uint32 {
	return crc32.Update(crc32.Checksum(b[:4], castagnoli), castagnoli, b[8:footerSize])
}

var errNoFooter = errors.New("no footer")

// parseFooter returns the size of the final description before a footer.
func parseFooter(b []byte, salt uint64) (int, error) {
	if len(b) != footerSize || string(b[16:]) != footerMagic ||
		binary.LittleEndian.Uint64(b[8:]) != salt || binary.LittleEndian.Uint32(b[4:]) != footerSum(b) {
		return 0, errNoFooter
	}
	return eventlog.RecordSize(b)
}

func newSalt() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // documented never to fail
	return binary.LittleEndian.Uint64(b[:])
}

// cloneInfo keeps a description apart from the caller's. What is the same in an
// earlier one, which is ours already, is taken from there.
func cloneInfo(info, earlier spool.Info) spool.Info {
	if maps.Equal(info.Labels, earlier.Labels) {
		info.Labels = earlier.Labels
	} else {
		info.Labels = maps.Clone(info.Labels)
	}
	if slices.Equal(info.Argv, earlier.Argv) {
		info.Argv = earlier.Argv
	} else {
		info.Argv = slices.Clone(info.Argv)
	}
	if info.Outcome != nil {
		o := *info.Outcome
		info.Outcome = &o
	}
	return info
}
