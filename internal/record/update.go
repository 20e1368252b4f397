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
	for _, v := range []uint64{uint64(n.Last), uint64(n.Segment), uint64(n.Size)} {
		dst = binary.AppendUvarint(dst, v)
	}
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
	m := message{b: b}
	n := new(Update)
	n.Info.ID = spool.RunID(m.text())
	n.Last, n.Segment, n.Size = spool.Seq(m.uint()), spool.Seq(m.uint()), int64(m.uint())
	m.progress(&n.Info)
	if m.err != nil {
		return nil, fmt.Errorf("decode update: %w", m.err)
	}
	for b = m.b; len(b) > 0; {
		e, size, err := Decode(b)
		if err != nil {
			return nil, fmt.Errorf("decode update: %w", err)
		}
		e.Run = n.Info.ID
		n.Events = append(n.Events, e)
		b = b[size:]
	}
	return n, nil
}

// Complete fills in what the binary form leaves out of the description, from
// the one that answered the start.
func (n *Update) Complete(start spool.Info) {
	now := &n.Info
	start.State, start.Ended, start.Outcome, start.Last, start.Bytes = now.State, now.Ended, now.Outcome, now.Last, now.Bytes
	start.Title, start.TurnOutcome, start.Ledger = now.Title, now.TurnOutcome, now.Ledger
	start.Size, start.FirstSize = now.Size, now.FirstSize
	start.Turn, start.Asks = now.Turn, now.Asks
	n.Info = start
}
