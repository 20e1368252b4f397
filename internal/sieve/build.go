package sieve

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"slices"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/visible"
)

// Builder makes the sieves of the segments of a run, one after another.
type Builder struct {
	// GroupBytes is how many bytes of a log are in a group, at least: a group
	// ends with an event.
	GroupBytes int64

	lanes [len(Streams)]lane
	grams *grams
	clean []byte // a line without escape sequences

	notes  []byte
	begin  Place // of the group
	offset int64 // of the group
	size   int64 // of its records
	others []byte
	dense  bool // it has too many others
	groups int
	next   spool.Seq
}

// lane is the open line of a stream.
type lane struct {
	line []byte
	from Position
}

// NewBuilder returns a builder for a run.
func NewBuilder() *Builder { return &Builder{GroupBytes: GroupBytes, grams: newGrams(), next: 1} }

// add adds the record of an event, which is at an offset of the segment.
func (b *Builder) add(e *spool.Event, raw []byte, offset int64) {
	if b.size >= b.GroupBytes {
		b.endGroup()
	}
	if b.size == 0 {
		b.begin, b.offset = b.place(e.Seq), offset
	}
	b.size += int64(len(raw))
	b.next = e.Seq + 1
	switch i := slices.Index(Streams[:], e.Stream); {
	case e.Kind == spool.KindOutput && i >= 0:
		b.addOutput(&b.lanes[i], e)
	case e.Kind != spool.KindOutput && len(e.Data) > 0 && !b.dense:
		b.others = append(b.others, raw...)
		b.dense = int64(len(b.others)) > b.GroupBytes/maxOthersShare
	}
}

// addOutput adds the output of an event. It cuts lines into pieces as a search does.
func (b *Builder) addOutput(l *lane, e *spool.Event) {
	text, at := e.Bytes, Position{Seq: e.Seq}
	if len(l.line) > 0 {
		end := bytes.IndexByte(text, '\n')
		if end < 0 {
			b.open(l, at, text)
			return
		}
		b.open(l, at, text[:end])
		b.endLine(l)
		text = text[end+1:]
		at.Offset += end + 1
	}
	last := bytes.LastIndexByte(text, '\n') + 1
	b.lines(text[:last])
	at.Offset += last
	b.open(l, at, text[last:])
}

// open adds to the open line.
func (b *Builder) open(l *lane, at Position, text []byte) {
	for len(text) > 0 {
		if len(l.line) == MaxLine {
			b.endLine(l)
		}
		if len(l.line) == 0 {
			l.from = at
		}
		n := min(len(text), MaxLine-len(l.line))
		l.line = append(l.line, text[:n]...)
		text = text[n:]
		at.Offset += n
	}
}

func (b *Builder) endLine(l *lane) {
	b.lines(l.line)
	l.line = l.line[:0]
}

// lines adds whole lines, or a piece of one.
func (b *Builder) lines(text []byte) {
	for len(text) > 0 {
		esc := bytes.IndexByte(text, 0x1b)
		if esc < 0 {
			b.grams.addFolded(text)
			return
		}
		begin := bytes.LastIndexByte(text[:esc], '\n') + 1
		b.grams.addFolded(text[:begin])
		line := text[begin:]
		end := bytes.IndexByte(line, '\n')
		if end < 0 {
			end = len(line)
		}
		// A long line is cut before its escape sequences are removed.
		for piece := range slices.Chunk(line[:end], MaxLine) {
			b.clean = visible.AppendUnstyled(b.clean[:0], bytes.TrimSuffix(piece, []byte("\r")))
			b.grams.addFolded(b.clean)
		}
		text = line[min(end+1, len(line)):]
	}
}

// place returns where a search may begin before an event.
func (b *Builder) place(next spool.Seq) Place {
	p := Place{Next: next}
	for i := range b.lanes {
		if l := &b.lanes[i]; len(l.line) > 0 {
			p.Open[i] = l.from
		}
	}
	return p
}

func (b *Builder) endGroup() {
	b.groups++
	b.notes = appendPlace(b.notes, b.begin)
	b.notes = binary.AppendUvarint(b.notes, uint64(b.offset))
	b.notes = binary.AppendUvarint(b.notes, uint64(b.size))
	if b.dense {
		b.others = nil
	}
	b.notes = appendBytes(b.notes, b.others)
	set := b.grams.take(nil, int(b.size/maxSetShare))
	if b.dense || crowded(set) {
		b.notes = append(b.notes, 0)
	} else {
		b.notes = appendBytes(append(b.notes, 1), set)
	}
	b.size, b.others, b.dense = 0, b.others[:0], false
}

// Notes returns the sieve of the segment, whose last record was added. Lines that are open
// count for its last group, too, because they may be the end of the log.
func (b *Builder) Notes() []byte {
	for i := range b.lanes {
		b.lines(b.lanes[i].line)
	}
	if b.size > 0 {
		b.endGroup()
	}
	n := []byte{version}
	n = binary.AppendUvarint(n, uint64(b.groups))
	n = append(n, b.notes...)
	n = appendPlace(n, b.place(b.next))
	n = binary.LittleEndian.AppendUint32(n, crc32.Checksum(n, castagnoli))
	b.notes, b.groups = b.notes[:0], 0
	return n
}

func appendPlace(dst []byte, p Place) []byte {
	dst = binary.AppendUvarint(dst, uint64(p.Next))
	for _, o := range p.Open {
		dst = binary.AppendUvarint(dst, uint64(o.Seq))
		dst = binary.AppendUvarint(dst, uint64(o.Offset))
	}
	return dst
}

func appendBytes(dst, b []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(b)))
	return append(dst, b...)
}

// AddRecords adds the records of a segment that are whole in b, which is at an offset of
// the segment. It returns their size, and whether they end with the last record.
func (b *Builder) AddRecords(content []byte, offset int64) (size int, end bool, err error) {
	for len(content)-size >= record.HeaderSize {
		raw := content[size:]
		h, err := record.ParseHead(raw)
		if err != nil {
			return size, false, err
		}
		if h.Size > len(raw) {
			break
		}
		if h.Place == 0 {
			e, _, err := record.Decode(raw)
			if err != nil {
				return size, false, err
			}
			b.add(&e, raw[:h.Size], offset+int64(size))
		}
		size += h.Size
		if h.Place == record.AtEnd {
			return size, true, nil
		}
	}
	return size, false, nil
}
