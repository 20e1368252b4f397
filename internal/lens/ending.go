package lens

import (
	"context"

	"github.com/spool-run/spool"
)

const (
	// unreadBytes is how much output of a log is read at once for the numbers of
	// its last lines. With more, those lines come without numbers.
	unreadBytes = 4 << 20
	// endingBytes is how much is read for them then, about.
	endingBytes = 16 << 20
)

// ending returns the last lines of a log that was not read so far, numbered from the
// end. It reports false if the log was, or nearly.
func (v *view) ending(ctx context.Context, q *RowsQuery) (rows Rows, ok bool, err error) {
	info, err := v.lens.backend.Stat(ctx, v.id)
	if err != nil || info.Bytes-v.index.bytes <= unreadBytes {
		return Rows{}, false, err
	}
	want := int(min(-q.From, int64(v.lens.opts.Rows)))
	for back := spool.Seq(16); ; back *= 4 {
		from := v.index.last // more was read before
		if info.Last > back {
			from = max(from, info.Last-back)
		}
		all := RowsQuery{From: 1, Streams: q.Streams}
		c, read := &collector{opts: &v.lens.opts, query: &all, last: want + 1}, 0
		err := v.read(ctx, from, func(e *spool.Event) bool {
			read += len(e.Bytes)
			return c.add(e)
		})
		if isDamage(err) {
			return Rows{}, false, nil // the last lines that can be read are elsewhere
		}
		if err != nil {
			return Rows{}, false, err
		}
		c.end()
		// The first line may have begun before.
		if len(c.rows) <= want && from > v.index.last && read < endingBytes {
			continue
		}
		if len(c.rows) < 2 || len(c.rows) <= want && from == v.index.last {
			return Rows{}, false, nil // it has few lines, and long ones
		}
		lines := c.rows[max(1, len(c.rows)-want):]
		for i := range lines {
			lines[i].N = int64(i - len(lines))
		}
		return Rows{Lines: lines[:min(len(lines), q.Count)], Total: v.index.begun()}, true, nil
	}
}
