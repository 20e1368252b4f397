package store

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"maps"
	"slices"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// A segment is the magic and then records: a description of the run, its
// events with further descriptions between them, and, where the run is
// complete, the final description and a footer, which ends the file:
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
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

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
	return record.Size(b)
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
