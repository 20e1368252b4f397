package lens

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/screen"
)

// Defaults of [Options].
const (
	// DefaultIdle is how long what was learned about a log is kept unused.
	DefaultIdle = 10 * time.Minute
	// DefaultMemory is how much memory it takes in total.
	DefaultMemory = 64 << 20
	// DefaultCheckpoints is how many screens of a run are kept, to draw others from.
	DefaultCheckpoints = 64
)

const (
	pageBytes = 1 << 20
	// checkpointBytes is how much output is between two screens that are kept.
	checkpointBytes = 2 << 20
	// turnFor is how long who reads on may keep others waiting.
	turnFor = 10 * time.Millisecond
)

// Options configure a [Lens]. Zero fields mean the defaults.
type Options struct {
	Idle        time.Duration
	Memory      int64
	Checkpoints int // screens of a run that are kept
	Rows        int // lines that [Lens.Rows] returns
	Bytes       int // of their text, about
	Line        int // bytes of one
}

// Lens finds lines and screens in logs without reading them from the beginning each
// time. What it learns it keeps in memory only. It is safe for concurrent use;
// requests for one run wait for each other.
type Lens struct {
	backend spool.Backend
	opts    Options

	mu    sync.Mutex
	views map[spool.RunID]*view
}

// New returns a lens on the runs of a backend.
func New(b spool.Backend, o Options) *Lens {
	if o.Idle == 0 {
		o.Idle = DefaultIdle
	}
	o.Memory = cmp.Or(o.Memory, DefaultMemory)
	o.Checkpoints = cmp.Or(o.Checkpoints, DefaultCheckpoints)
	o.Rows, o.Bytes, o.Line = cmp.Or(o.Rows, DefaultRows), cmp.Or(o.Bytes, DefaultBytes), cmp.Or(o.Line, DefaultLine)
	return &Lens{backend: b, opts: o, views: make(map[spool.RunID]*view)}
}

// view is what is known about one log.
type view struct {
	lens *Lens
	id   spool.RunID
	busy chan struct{} // has room for one; the goroutine that fills it owns the fields below

	created  time.Time // of the run: another one may get its id
	index    index
	complete bool      // the index reached the end that the log had
	damaged  spool.Seq // the first event that cannot be read; zero if all can
	screens  []*screen.View

	// Guarded by lens.mu.
	used  time.Time
	users int
	size  int64
}

// enter returns the view of a run for the caller alone, until it calls done.
func (l *Lens) enter(ctx context.Context, id spool.RunID) (v *view, done func(), err error) {
	info, err := l.backend.Stat(ctx, id)
	if err != nil {
		return nil, nil, err
	}
	l.mu.Lock()
	v = l.views[id]
	if v == nil {
		v = &view{lens: l, id: id, busy: make(chan struct{}, 1), created: info.Created, index: newIndex()}
		l.views[id] = v
	}
	v.users++
	l.mu.Unlock()
	leave := func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		v.users--
		v.used = time.Now()
		l.sweep()
	}
	select {
	case v.busy <- struct{}{}:
	case <-ctx.Done():
		leave()
		return nil, nil, context.Cause(ctx)
	}
	if !v.created.Equal(info.Created) { // that run was removed
		v.created, v.index, v.complete, v.damaged, v.screens = info.Created, newIndex(), false, 0, nil
	}
	return v, func() {
		size := v.index.size() + v.screensSize()
		l.mu.Lock()
		v.size = size
		l.mu.Unlock()
		<-v.busy
		leave()
	}, nil
}

// sweep drops views that are not in use: those that were not used lately, and as many
// as take too much memory. Callers hold l.mu.
func (l *Lens) sweep() {
	var idle []*view
	total := int64(0)
	for id, v := range l.views {
		total += v.size
		switch {
		case v.users > 0:
		case time.Since(v.used) > l.opts.Idle:
			total -= v.size
			delete(l.views, id)
		default:
			idle = append(idle, v)
		}
	}
	slices.SortFunc(idle, func(a, b *view) int { return a.used.Compare(b.used) })
	for _, v := range idle {
		if total <= l.opts.Memory {
			return
		}
		total -= v.size
		delete(l.views, v.id)
	}
}

// extend reads on until enough holds or the log has no more events. It lets others
// who wait for the view have it in between: what callers know of the view before it is
// old after it.
func (v *view) extend(ctx context.Context, enough func() bool) error {
	for since := time.Now(); ; {
		if len(v.index.places) > 0 && enough() {
			return nil
		}
		page, err := v.lens.backend.Read(ctx, v.id, spool.Query{After: v.index.last, MaxBytes: pageBytes})
		if isDamage(err) { // what precedes it is good
			v.damaged, v.complete = v.index.last+1, true
			return nil
		}
		if err != nil {
			return fmt.Errorf("read the log: %w", err)
		}
		for i := range page.Events {
			v.index.add(&page.Events[i])
		}
		v.complete = len(page.Events) == 0 || page.Next >= page.Info.Last
		if v.complete {
			return nil
		}
		if time.Since(since) >= turnFor {
			<-v.busy // the next one who waits has it
			v.busy <- struct{}{}
			since = time.Now()
		}
	}
}

// isDamage reports whether an error means that the bytes of a log are not the ones that
// were written.
func isDamage(err error) bool {
	var d interface{ Damaged() bool }
	return errors.As(err, &d) && d.Damaged()
}

// Index returns where in the log its output is. It reads on for as long as wait says;
// a longer log is not complete then, and the next call goes on.
func (l *Lens) Index(ctx context.Context, id spool.RunID, wait time.Duration) (Index, error) {
	v, done, err := l.enter(ctx, id)
	if err != nil {
		return Index{}, err
	}
	defer done()
	end := time.Now().Add(wait)
	v.complete = false
	if err := v.extend(ctx, func() bool { return !time.Now().Before(end) }); err != nil {
		return Index{}, err
	}
	return v.index.shown(v.complete, v.damaged), nil
}

// ScreenQuery says which screen to return.
type ScreenQuery struct {
	At spool.Seq // the event after which it is; zero means the last
	// Quick is whether to read little: [screen.View.Exact] may be false then, unless a
	// screen shortly before is known.
	Quick bool
	// Back is how many of the lines above it to add; with Quick there may be fewer.
	Back   int
	Styled bool // whether those lines have their colours
}

// Screen returns the screen of a run with a terminal. The caller owns the view.
func (l *Lens) Screen(ctx context.Context, id spool.RunID, q ScreenQuery) (*screen.View, error) {
	at, quick := q.At, q.Quick
	info, err := l.backend.Stat(ctx, id)
	if err != nil {
		return nil, err
	}
	if !info.TTY {
		return nil, fmt.Errorf("screen of run %s: %w: it has no terminal", id, spool.ErrUnsupported)
	}
	if at == 0 || at > info.Last {
		at = info.Last
	}
	v, done, err := l.enter(ctx, id)
	if err != nil {
		return nil, err
	}
	defer done()
	start := v.screenBefore(&info, at)
	if quick && at == info.Last && info.Bytes-v.bytesAt(start.Last) > checkpointBytes {
		// The index, which may take long, would not help.
		return screen.LoadBack(ctx, spool.Attach(l.backend, id), &info, q.Back, q.Styled)
	}
	if err := v.extend(ctx, func() bool { return v.index.last >= at }); err != nil {
		return nil, err
	}
	far := v.bytesAt(at)-v.bytesAt(start.Last) > checkpointBytes
	if quick && far {
		then := info
		then.Last, then.Details = at, nil
		then.Size = v.sizeAt(&info, at)
		return screen.LoadBack(ctx, spool.Attach(l.backend, id), &then, q.Back, q.Styled)
	}
	if q.Back == 0 {
		return v.draw(ctx, start, at)
	}
	return v.drawBack(ctx, start, &info, &q, at)
}

// drawBack brings a screen to an event with the lines above it. It begins farther back for
// as long as there are too few.
func (v *view) drawBack(ctx context.Context, start *screen.View, info *spool.Info, q *ScreenQuery, at spool.Seq) (*screen.View, error) {
	for back := int64(checkpointBytes); ; back *= 4 {
		from := start.Last
		start.KeepBack(q.Back, q.Styled)
		s, err := v.draw(ctx, start, at)
		if err != nil || from == 0 || len(s.Back()) >= q.Back || q.Quick && back > checkpointBytes {
			return s, err
		}
		before := v.bytesAt(from) - back
		start = v.screenBefore(info, v.index.before(func(p *place) bool { return p.Bytes <= before }).Seq-1)
	}
}

// sizeAt returns the size of the terminal after an event.
func (v *view) sizeAt(info *spool.Info, at spool.Seq) spool.Size {
	size := info.FirstSize
	for _, r := range v.index.sizes {
		if r.seq <= at {
			size = r.size
		}
	}
	return size
}

// bytesAt returns about how much output there is up to an event.
func (v *view) bytesAt(seq spool.Seq) int64 {
	if seq >= v.index.last {
		return v.index.bytes
	}
	return v.index.before(func(p *place) bool { return p.Seq <= seq }).Bytes
}

// screenBefore returns a copy of the last known screen up to an event.
func (v *view) screenBefore(info *spool.Info, at spool.Seq) *screen.View {
	for _, s := range slices.Backward(v.screens) {
		if s.Last <= at {
			return s.Clone()
		}
	}
	return screen.Begin(info)
}

// draw brings a screen to an event, and keeps copies on the way.
func (v *view) draw(ctx context.Context, s *screen.View, at spool.Seq) (*screen.View, error) {
	log := spool.Attach(v.lens.backend, v.id)
	from := v.bytesAt(s.Last)
	for i := range v.index.places {
		p := &v.index.places[i]
		if p.Seq > at {
			break
		}
		if p.Seq <= s.Last+1 || p.Bytes-from < checkpointBytes {
			continue
		}
		if err := s.Advance(ctx, log, p.Seq-1); err != nil {
			return nil, err
		}
		from = p.Bytes
		kept := s.Clone()
		kept.KeepBack(0, false)
		v.keep(kept)
	}
	return s, s.Advance(ctx, log, at)
}

// keep keeps a screen. If there are too many, every second is dropped.
func (v *view) keep(s *screen.View) {
	i, known := slices.BinarySearchFunc(v.screens, s.Last, func(s *screen.View, at spool.Seq) int {
		return int(int64(s.Last) - int64(at))
	})
	if known {
		return
	}
	v.screens = slices.Insert(v.screens, i, s)
	for len(v.screens) > 1 && (len(v.screens) > v.lens.opts.Checkpoints || v.screensSize() > v.lens.opts.Memory/2) {
		kept := v.screens[:0]
		for i := (len(v.screens) - 1) % 2; i < len(v.screens); i += 2 { // the last one stays
			kept = append(kept, v.screens[i])
		}
		clear(v.screens[len(kept):])
		v.screens = kept
	}
}

// screensSize is about how much memory the screens take.
func (v *view) screensSize() int64 {
	total := int64(0)
	for _, s := range v.screens {
		rows, cols := s.Size()
		total += int64(rows) * int64(cols) * 2 * cellBytes
	}
	return total
}

// cellBytes is about how much memory a cell of a screen takes.
const cellBytes = 48
