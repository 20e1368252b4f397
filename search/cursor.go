package search

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spool-run/spool"
)

// place is where in the log of a run a search goes on: an event, and for a lane whose
// line is not complete, or whose event was not searched completely, a place before or
// in it.
type place struct {
	next  spool.Seq
	lanes [len(lanes)]position // a seq of zero means the next event
}

// cursor is where a search goes on.
type cursor struct {
	before string      // the cursor of the run before, or how many of Query.Runs are done
	run    spool.RunID // the next run, if a part of it was searched
	at     place
}

// String returns the text form: before~run~next~lane.seq.offset…
func (c cursor) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s~%s~%d", c.before, c.run, c.at.next)
	for i, p := range c.at.lanes {
		if p.seq > 0 {
			fmt.Fprintf(&b, "~%d.%d.%d", i, p.seq, p.offset)
		}
	}
	return b.String()
}

// parseCursor is the inverse of String. The text may be anything.
func parseCursor(text string) (cursor, error) {
	var c cursor
	if text == "" {
		return c, nil
	}
	invalid := fmt.Errorf("search: %w: %.200q is no cursor of a search", spool.ErrInvalid, text)
	parts := strings.Split(text, "~")
	if len(parts) < 3 || len(parts) > 3+len(lanes) {
		return c, invalid
	}
	next, err := strconv.ParseUint(parts[2], 10, 64)
	if err != nil || parts[1] != "" && spool.RunID(parts[1]).Check() != nil {
		return c, invalid
	}
	c.before, c.run, c.at.next = parts[0], spool.RunID(parts[1]), spool.Seq(next)
	for _, part := range parts[3:] {
		fields := strings.Split(part, ".")
		if len(fields) != 3 {
			return c, invalid
		}
		i, err1 := strconv.ParseUint(fields[0], 10, 8)
		seq, err2 := strconv.ParseUint(fields[1], 10, 64)
		offset, err3 := strconv.ParseUint(fields[2], 10, 31)
		if err1 != nil || err2 != nil || err3 != nil || i >= uint64(len(lanes)) {
			return c, invalid
		}
		c.at.lanes[i] = position{spool.Seq(seq), int(offset)}
	}
	return c, nil
}
