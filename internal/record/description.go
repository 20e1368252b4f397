package record

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"slices"
	"time"

	"github.com/segmentio/encoding/json"

	"github.com/spool-run/spool"
)

// A description of a run is kept among its events as a record with seq 0 and a
// kind that no event has. Its stream says which description it is, its turn
// holds the salt of the segment, and its Data is the JSON form of [spool.Info].
const descriptionKind = 255

// Place says where in a segment a description is. It is zero for an event.
type Place byte

// The places of descriptions.
const (
	AtHead  Place = 1 // begins a segment
	Between Place = 2 // anywhere in it
	AtEnd   Place = 3 // after the last event of a run
)

// Head is what the header of a record says, before its checksum is known.
type Head struct {
	Size  int // of the whole record
	Seq   spool.Seq
	Data  int    // size of its Data, which follows the header
	Place Place  // of a description; zero for an event
	Salt  uint64 // of the segment, in a description
}

// ParseHead reads the header that b begins with. b has at least [HeaderSize]
// bytes.
func ParseHead(b []byte) (Head, error) {
	size, err := Size(b)
	if err != nil {
		return Head{}, err
	}
	h := Head{Size: size, Seq: spool.Seq(binary.LittleEndian.Uint64(b[8:])), Data: int(binary.LittleEndian.Uint32(b[28:]))}
	if h.Seq == 0 {
		if b[24] != descriptionKind || Place(b[25]) < AtHead || Place(b[25]) > AtEnd {
			return Head{}, fmt.Errorf("%w: seq 0", ErrCorrupt)
		}
		h.Place = Place(b[25])
		h.Salt = binary.LittleEndian.Uint64(b[32:])
	}
	return h, nil
}

// usualDescription is room for the record of most descriptions, and for what a log has
// after the last one.
const usualDescription = 768

// AppendDescription appends the record of a description.
func AppendDescription(dst []byte, place Place, salt uint64, now time.Time, info *spool.Info) ([]byte, error) {
	at := len(dst)
	dst = append(slices.Grow(dst, usualDescription), make([]byte, HeaderSize)...)
	dst = info.AppendJSON(dst)
	h, data := dst[at:at+HeaderSize], dst[at+HeaderSize:]
	size := HeaderSize + len(data)
	if size > MaxSize {
		return dst[:at], fmt.Errorf("encode description: %d bytes exceed %d", len(data), spool.MaxEventBytes)
	}
	binary.LittleEndian.PutUint32(h[0:], uint32(size))
	binary.LittleEndian.PutUint64(h[16:], uint64(now.UnixNano()))
	h[24], h[25] = descriptionKind, byte(place)
	binary.LittleEndian.PutUint32(h[28:], uint32(len(data)))
	binary.LittleEndian.PutUint64(h[32:], salt)
	sum := crc32.Update(0, castagnoli, h[8:])
	binary.LittleEndian.PutUint32(h[4:], crc32.Update(sum, castagnoli, data))
	return dst, nil
}

// DecodeDescription reads the description in the Data of a decoded record. It
// must be that of the run.
func DecodeDescription(data []byte, id spool.RunID) (spool.Info, error) {
	// The decoder makes a map with room for 64 labels where there is none: that would take
	// more memory than all the rest.
	info := spool.Info{Labels: make(map[string]string)}
	if err := json.Unmarshal(data, &info); err != nil {
		return spool.Info{}, fmt.Errorf("decode description: %w", err)
	}
	if len(info.Labels) == 0 {
		info.Labels = nil
	}
	if info.ID != id {
		return spool.Info{}, fmt.Errorf("decode description: it is of run %q", info.ID)
	}
	return info, nil
}
