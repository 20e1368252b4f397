package record

import (
	"encoding/binary"
	"fmt"
	"strconv"

	"github.com/spool-run/spool"
)

// Update is what a keeper reports of a run: its description, where its log ends in
// its files, and the events themselves if they are few and small.
type Update struct {
	Info   spool.Info    `json:"info"`
	Events []spool.Event `json:"events,omitempty"`
	// Last is the last event in the files, which the end of a log may not
	// have fitted into.
	Last    spool.Seq `json:"last"`
	Segment spool.Seq `json:"segment"`    // first seq of the last segment
	Size    int64     `json:"size_bytes"` // bytes of that segment that are whole
}

// AppendJSON appends the JSON form.
func (n *Update) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"info":`...)
	dst = n.Info.AppendJSON(dst)
	if len(n.Events) > 0 {
		dst = append(dst, `,"events":`...)
		sep := byte('[')
		for i := range n.Events {
			dst = n.Events[i].AppendJSON(append(dst, sep))
			sep = ','
		}
		dst = append(dst, ']')
	}
	dst = append(dst, `,"last":`...)
	dst = strconv.AppendUint(dst, uint64(n.Last), 10)
	dst = append(dst, `,"segment":`...)
	dst = strconv.AppendUint(dst, uint64(n.Segment), 10)
	dst = append(dst, `,"size_bytes":`...)
	dst = strconv.AppendInt(dst, n.Size, 10)
	return append(dst, '}')
}

// AppendUpdate appends the binary form of the first update of a run. Of the
// description it holds the id and what changes while a run lives.
func AppendUpdate(dst []byte, n *Update) (_ []byte, err error) {
	dst = appendText(dst, n.Info.ID)
	dst = binary.AppendUvarint(dst, uint64(n.Last))
	dst = binary.AppendUvarint(dst, uint64(n.Segment))
	dst = binary.AppendUvarint(dst, uint64(n.Size))
	dst = appendProgress(dst, &n.Info)
	for i := range n.Events {
		if dst, err = Append(dst, &n.Events[i]); err != nil {
			return nil, fmt.Errorf("encode update: %w", err)
		}
	}
	return dst, nil
}

// DecodeUpdate is the inverse of [AppendUpdate]. [Update.Complete] fills in the rest
// of the description.
func DecodeUpdate(b []byte) (*Update, error) {
	n := new(Update)
	if err := n.Decode(b); err != nil {
		return nil, err
	}
	return n, nil
}

// Decode is [DecodeUpdate] into an update that is empty but for the id of its run, if
// the caller knows that. The events point into b.
func (n *Update) Decode(b []byte) error {
	m := message{b: b}
	if id := m.bytes(); string(id) != string(n.Info.ID) {
		n.Info.ID = spool.RunID(id)
	}
	n.Last, n.Segment, n.Size = spool.Seq(m.uint()), spool.Seq(m.uint()), int64(m.uint())
	m.progress(&n.Info)
	if m.err != nil {
		return fmt.Errorf("decode update: %w", m.err)
	}
	for b = m.b; len(b) > 0; {
		e, size, err := Decode(b)
		if err != nil {
			return fmt.Errorf("decode update: %w", err)
		}
		e.Run = n.Info.ID
		n.Events = append(n.Events, e)
		b = b[size:]
	}
	return nil
}

// AppendWhole appends the binary form of any update of a run. What mostly stays as it is
// comes first and apart, so that a reader that knows it need not decode it again.
func AppendWhole(dst []byte, n *Update) ([]byte, error) {
	facts := n.Info
	setProgress(&facts, &spool.Info{})
	at := len(dst)
	dst = append(dst, make([]byte, factsHead)...)
	dst = AppendInfo(dst, &facts)
	binary.LittleEndian.PutUint32(dst[at:], uint32(len(dst)-at-factsHead))
	return AppendUpdate(dst, n)
}

// factsHead is the number of bytes before the facts, which say how many follow.
const factsHead = 4

// CutWhole divides what [AppendWhole] made into the facts, which [DecodeInfo] reads, and
// the rest, which [DecodeUpdate] reads.
func CutWhole(b []byte) (facts, rest []byte, err error) {
	if len(b) < factsHead {
		return nil, nil, fmt.Errorf("decode update: %w", errCut)
	}
	n := binary.LittleEndian.Uint32(b)
	if b = b[factsHead:]; uint64(n) > uint64(len(b)) {
		return nil, nil, fmt.Errorf("decode update: %w", errCut)
	}
	return b[:n:n], b[n:], nil
}

// Complete fills in what the binary form leaves out of the description, from
// the one that answered the start.
func (n *Update) Complete(start spool.Info) {
	setProgress(&start, &n.Info)
	n.Info = start
}

// setProgress sets what changes while a run lives to what it is now.
func setProgress(i, now *spool.Info) {
	i.State, i.Ended, i.Outcome, i.Last, i.Bytes = now.State, now.Ended, now.Outcome, now.Last, now.Bytes
	i.Title, i.TurnOutcome, i.Ledger = now.Title, now.TurnOutcome, now.Ledger
	i.Size, i.FirstSize = now.Size, now.FirstSize
	i.Turn, i.Asks = now.Turn, now.Asks
}
