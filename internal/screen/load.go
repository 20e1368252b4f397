package screen

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spool-run/spool"
)

// How much of a log is read for a screen.
const (
	// Window is how much of the end of a log [Load] reads.
	Window = 1 << 20
	// Head is how much of its beginning Load reads for the modes that the
	// program set there, if the window does not reach it.
	Head = 64 << 10
	// MaxReplay is how much [Replay] reads.
	MaxReplay = 512 << 20

	pageBytes = 1 << 20
)

// Log is the log of a run: a [spool.Run].
type Log interface {
	Read(ctx context.Context, q spool.Query) (spool.Page, error)
}

// View is the screen of a run after one of its events.
type View struct {
	*Screen
	Last spool.Seq // the last event that it shows
	// Exact is whether all that the screen shows was read. Otherwise parts that
	// the program drew long ago and never again may be missing; [Replay] has
	// them.
	Exact bool
	// Read is how many bytes of output were read.
	Read int64
}

// Load returns the screen of a run with a terminal after the last event that
// info names. It reads the end of the log, so that the time it takes does not
// depend on the size of the log.
func Load(ctx context.Context, log Log, info *spool.Info) (*View, error) {
	return LoadBack(ctx, log, info, 0, false)
}

// LoadBack is Load with lines above the screen, as far as what it reads has them; see
// [Screen.KeepBack].
func LoadBack(ctx context.Context, log Log, info *spool.Info, lines int, styled bool) (*View, error) {
	v := newView(info)
	v.KeepBack(lines, styled)
	chunks, first, err := v.tail(ctx, log)
	if err != nil {
		return nil, err
	}
	if first > 0 {
		if err := v.readHead(ctx, log); err != nil {
			return nil, err
		}
	}
	size := sizeNow(info)
	if first == 0 {
		size = firstSize(info)
	} else if was := sizeBefore(chunks); was != (spool.Size{}) {
		size = was
	}
	v.resize(size)
	for i := len(chunks) - 1; i >= 0; i-- {
		for _, p := range chunks[i] {
			v.apply(p)
		}
	}
	v.Exact = first == 0 || v.page.redrawn
	return v, nil
}

// Replay is Load for all of the log, or the end of it if it is larger than
// [MaxReplay]. It takes about a second per 100 MB.
func Replay(ctx context.Context, log Log, info *spool.Info) (*View, error) {
	v := newView(info)
	after := spool.Seq(0)
	size := firstSize(info)
	v.resize(size)
	if info.Bytes > MaxReplay && info.Last > 0 {
		skip := float64(info.Bytes-MaxReplay) / float64(info.Bytes)
		after = spool.Seq(skip * float64(info.Last))
		if err := v.readHead(ctx, log); err != nil {
			return nil, err
		}
	}
	v.Exact = after == 0
	err := v.read(ctx, log, after, v.Last, func(p piece) bool {
		if after > 0 && p.was != (spool.Size{}) { // the beginning was left out, and the size then is known now
			v.resize(p.was)
		}
		v.apply(p)
		return true
	})
	if err != nil {
		return nil, err
	}
	v.Exact = v.Exact || v.page.redrawn
	return v, nil
}

// Advance reads the events up to last.
func (v *View) Advance(ctx context.Context, log Log, last spool.Seq) error {
	err := v.read(ctx, log, v.Last, last, func(p piece) bool {
		v.apply(p)
		return true
	})
	if err == nil {
		v.Last = max(v.Last, last)
	}
	return err
}

// piece is what an event does to a screen: it writes output, or changes the size.
type piece struct {
	output    []byte
	size, was spool.Size // zero in output
}

// resize changes the size to one that is known.
func (v *View) resize(s spool.Size) {
	if s != (spool.Size{}) {
		v.Resize(int(s.Rows), int(s.Cols))
	}
}

func (v *View) apply(p piece) {
	v.resize(p.size)
	_, _ = v.Write(p.output)
}

// pieceOf reports false for an event that leaves a screen as it is.
func pieceOf(e *spool.Event) (piece, bool) {
	switch {
	case e.Kind == spool.KindOutput && e.Stream == spool.PTY:
		return piece{output: e.Bytes}, true
	case e.Kind == spool.KindResized:
		var r spool.Resized
		if err := json.Unmarshal(e.Data, &r); err == nil && r.Rows > 0 && r.Cols > 0 {
			return piece{size: r.Size, was: r.Was}, true
		}
	}
	return piece{}, false
}

// newView returns an empty screen of the size that the terminal of the run has.
func newView(info *spool.Info) *View {
	size := sizeNow(info)
	return &View{Screen: New(int(size.Rows), int(size.Cols)), Last: info.Last}
}

// sizeNow returns the size of the terminal at the end of the log, zero if it is not
// known.
func sizeNow(info *spool.Info) spool.Size {
	if info.Size != info.FirstSize {
		return info.Size
	}
	// The program may have set the size itself. An older server says nothing
	// about the size, or only this.
	var details struct { // of a process with a terminal
		Terminal *spool.Size `json:"terminal"`
	}
	if err := json.Unmarshal(info.Details, &details); err == nil && details.Terminal != nil {
		return *details.Terminal
	}
	return info.Size
}

// firstSize returns the size of the terminal at the beginning of the log.
func firstSize(info *spool.Info) spool.Size {
	if info.Size != info.FirstSize {
		return info.FirstSize
	}
	return sizeNow(info)
}

// sizeBefore returns the size before the first change in chunks of which the last
// is the oldest. It is zero if there is none.
func sizeBefore(chunks [][]piece) spool.Size {
	for i := len(chunks) - 1; i >= 0; i-- {
		for _, p := range chunks[i] {
			if p.was != (spool.Size{}) {
				return p.was
			}
		}
	}
	return spool.Size{}
}

// readHead starts the screen with the modes that the beginning of the log sets.
func (v *View) readHead(ctx context.Context, log Log) error {
	page, err := log.Read(ctx, spool.Query{MaxBytes: Head})
	if err != nil {
		return fmt.Errorf("read the beginning of the log: %w", err)
	}
	var m Modes
	for i := range page.Events {
		if e := &page.Events[i]; e.Kind == spool.KindOutput && e.Stream == spool.PTY {
			_, _ = m.Write(e.Bytes)
			v.Read += int64(len(e.Bytes))
		}
	}
	v.start(&m)
	return nil
}

// start begins with modes that were set in a part of the log that is not read.
func (s *Screen) start(m *Modes) {
	s.modes = *m
	s.modes.parser = parser{}
	s.modes.region, s.modes.styled = false, false
	for i := range s.pages {
		s.pages[i].redrawn = false
	}
	if m.alternate != 0 {
		s.page = &s.pages[1]
	}
	copy(s.charsets[:], m.charsets[:])
	if m.shifted {
		s.shift = 1
	}
}

// tail reads the end of the log, backwards in chunks. It returns the chunks, the
// last one first, and the event before the first that was read.
func (v *View) tail(ctx context.Context, log Log) (chunks [][]piece, first spool.Seq, err error) {
	first = v.Last
	var got int64
	for count := spool.Seq(64); first > 0 && got < Window; {
		after := first - min(first, count)
		var chunk []piece
		var size int64
		err := v.read(ctx, log, after, first, func(p piece) bool {
			chunk = append(chunk, p)
			size += int64(len(p.output))
			return size <= 2*Window || count == 1
		})
		if err != nil {
			return nil, 0, err
		}
		if size > 2*Window && count > 1 { // its events are larger than those after them
			count = max(1, count/16)
			continue
		}
		chunks = append(chunks, chunk)
		read := first - after
		got, first = got+size, after
		// As many events as fill the window if they are as large as these.
		fill := spool.Seq(max(0, Window-got)) * read / spool.Seq(max(1, size))
		count = min(max(fill, 16), 8*max(count, 16))
	}
	return chunks, first, nil
}

// read calls do with the pieces of the events from the one after a cursor to
// last, until it returns false.
func (v *View) read(ctx context.Context, log Log, after, last spool.Seq, do func(piece) bool) error {
	for after < last {
		page, err := log.Read(ctx, spool.Query{After: after, MaxBytes: pageBytes})
		if err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		if len(page.Events) == 0 {
			return nil
		}
		for i := range page.Events {
			e := &page.Events[i]
			if e.Seq > last {
				return nil
			}
			p, ok := pieceOf(e)
			v.Read += int64(len(p.output))
			if ok && !do(p) {
				return nil
			}
		}
		after = page.Next
	}
	return nil
}
