package keeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/eventlog"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/store"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// mirror is the log of a run as a reader of it sees it: the files, and what
// the keeper says about where they end. News is asked for when somebody has
// read all there is, and not before, so that a fast run costs one question for
// many events.
type mirror struct {
	backend *Backend
	id      spool.RunID
	owner   string
	journal *store.Journal
	log     *eventlog.Log

	mu      sync.Mutex
	info    spool.Info
	asOf    spool.Seq // the event that info is as new as; files of a live run tell of its start
	asking  bool
	need    spool.Seq // somebody waits for an event after this
	told    spool.Seq // stat said that there is this event
	readers int
	used    time.Time
}

func newMirror(b *Backend, info spool.Info, j *store.Journal) *mirror {
	last, sealed := j.Last()
	if sealed { // maybe since info was taken
		info = j.Info()
	}
	m := &mirror{backend: b, id: info.ID, owner: info.Owner, journal: j, info: info, used: time.Now()}
	m.log = eventlog.New(eventlog.Options{Run: info.ID, Tier: j, Last: last, Sealed: sealed})
	return m
}

func (m *mirror) touch() {
	m.mu.Lock()
	m.used = time.Now()
	m.mu.Unlock()
}

func (m *mirror) lastUse() time.Time {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.used
}

func (m *mirror) closed() bool {
	_, sealed := m.log.Last()
	return sealed
}

// idle reports whether the mirror may be forgotten.
func (m *mirror) idle() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, sealed := m.log.Last()
	return m.readers == 0 && !m.asking && sealed
}

// want has the keeper asked until there is an event after a cursor.
func (m *mirror) want(after spool.Seq) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.need = max(m.need, after)
	if m.asking || !m.lacks() {
		return
	}
	m.asking = true
	m.backend.wg.Go(m.ask)
}

// expect has the mirror wait for news that the keeper tells by itself, instead
// of asking. It reports whether it does.
func (m *mirror) expect() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.asking { // a reader was faster
		return false
	}
	m.asking = true
	return true
}

// hear takes the news that was expected, or nil if it will not come, and has
// the keeper asked for what is lacking then.
func (m *mirror) hear(news *record.News) {
	if news != nil {
		m.mu.Lock()
		info := m.info // as it was at the start
		m.mu.Unlock()
		news.Complete(info)
		_ = m.take(*news) // what went wrong is asked for
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.asking = m.lacks(); m.asking {
		m.backend.wg.Go(m.ask)
	}
}

// lacks reports whether somebody waits for what has not come. Callers hold
// m.mu.
func (m *mirror) lacks() bool {
	last, sealed := m.log.Last()
	return last <= m.need && !sealed && m.backend.ctx.Err() == nil
}

// ask gets news for as long as somebody lacks it.
func (m *mirror) ask() {
	for {
		m.mu.Lock()
		if !m.lacks() {
			m.asking = false
			m.mu.Unlock()
			return
		}
		m.mu.Unlock()
		_ = m.await() // what went wrong is tried again, and settled if the keeper is gone
	}
}

// await asks once, and sees to it that the run is settled if its keeper died.
func (m *mirror) await() error {
	b := m.backend
	last, _ := m.log.Last()
	var news record.News
	l, err := b.to(b.ctx, m.owner)
	if err == nil {
		err = l.call(b.ctx, methodAwait, awaitParams{m.id, last}, &news)
	}
	if err != nil {
		if lostErr := m.lost(b.ctx, err); lostErr != nil {
			return lostErr
		}
		return err
	}
	return m.take(news)
}

// take takes an answer in.
func (m *mirror) take(news record.News) error {
	return m.learn(news.Info, news.Events, store.Position{Last: news.Last, Segment: news.Segment, Size: news.Size})
}

// learn takes news in.
func (m *mirror) learn(info spool.Info, events []spool.Event, at store.Position) error {
	if err := m.journal.Advance(at); err != nil {
		return err
	}
	m.mu.Lock()
	if info.Last >= m.asOf {
		m.info, m.asOf = info, info.Last
	}
	m.mu.Unlock()
	// Up to there it is in the files. If that is the end, it is told as such:
	// nobody may see the last event and not know that it is.
	if at.Last < info.Last && (len(events) == 0 || events[0].Seq > at.Last) {
		m.log.Adopt(at.Last, nil, false)
	}
	m.log.Adopt(info.Last, events, info.State == spool.StateClosed)
	return nil
}

// lost is called when the keeper did not answer. A keeper that died makes its
// runs ours to settle; one that left has completed them. Either way the files
// know more.
func (m *mirror) lost(ctx context.Context, cause error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err := host.Settle(m.backend.opts.Host); err != nil {
		return fmt.Errorf("run %s: settle: %w", m.id, err)
	}
	if err := m.journal.Refresh(); err != nil {
		return fmt.Errorf("run %s: %w", m.id, err)
	}
	info := m.journal.Info()
	last, sealed := m.journal.Last()
	if sealed {
		m.mu.Lock()
		m.info = info
		m.mu.Unlock()
		m.log.Adopt(last, nil, true)
		return nil
	}
	// Not settled: the keeper lives, or somebody else is at it.
	select {
	case <-time.After(askAgainIn):
		return nil
	case <-ctx.Done():
		return errors.Join(context.Cause(ctx), cause)
	}
}

// askAgainIn is when a keeper that did not answer is asked again.
const askAgainIn = 20 * time.Millisecond

// stat describes the run now. What a live run's keeper knows may be ahead of
// what has been read.
func (m *mirror) stat(ctx context.Context) (spool.Info, error) {
	for !m.closed() {
		l, err := m.backend.to(ctx, m.owner)
		var info spool.Info
		if err == nil {
			err = l.call(ctx, methodStat, runproto.RunParams{Run: m.id}, &info)
		}
		switch {
		case err == nil:
			m.heard(info)
			return info, nil
		case !isGone(err) || ctx.Err() != nil || m.backend.ctx.Err() != nil:
			return spool.Info{}, err
		}
		if err := m.lost(ctx, err); err != nil {
			return spool.Info{}, err
		}
	}
	return m.known(), nil
}

// heard takes in what the keeper says about the run now.
func (m *mirror) heard(info spool.Info) {
	last, _ := m.log.Last()
	m.mu.Lock()
	m.told = max(m.told, info.Last)
	same := info.Last == last && last >= m.asOf // the moment of the log
	if same {
		m.info, m.asOf = info, last
	}
	m.mu.Unlock()
	if same && info.State == spool.StateClosed {
		// The files had the last event before they said that it is.
		m.log.Adopt(last, nil, true)
	}
}

// describe sees to it that what is known about the run is not older than the
// log, which it is when the mirror was made from the files of a live run.
func (m *mirror) describe(ctx context.Context) error {
	for {
		last, sealed := m.log.Last()
		m.mu.Lock()
		current := m.asOf >= last
		m.mu.Unlock()
		if sealed || current {
			return nil
		}
		info, err := m.stat(ctx)
		if err != nil {
			return err
		}
		if info.Last > last {
			m.want(info.Last - 1)
			if err := m.log.Wait(ctx, info.Last-1); err != nil {
				return err
			}
		}
	}
}

// toldOf returns the last event that stat knew of.
func (m *mirror) toldOf() spool.Seq {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.told
}

// known describes the run as far as the mirror knows.
func (m *mirror) known() spool.Info {
	m.mu.Lock()
	defer m.mu.Unlock()
	info := m.info
	last, sealed := m.log.Last()
	if info.State == spool.StateClosed && !sealed && last < info.Last {
		info.State = spool.StateExited // the closed event has yet to come
	}
	info.Last = last
	return info
}

// enter and leave keep the mirror while somebody reads.
func (m *mirror) enter() {
	m.mu.Lock()
	m.readers++
	m.mu.Unlock()
}

func (m *mirror) leave() {
	m.mu.Lock()
	m.readers--
	m.used = time.Now()
	m.mu.Unlock()
}

// ready waits as the query asks, and fills in its default. A reader that is at
// the end of what is known has the keeper asked. Whoever took a cursor from
// what the keeper said must find all before that here.
func (m *mirror) ready(ctx context.Context, q spool.Query) (spool.Query, error) {
	if q.MaxBytes <= 0 {
		q.MaxBytes = spool.DefaultPageBytes
	}
	last, sealed := m.log.Last()
	told := m.toldOf()
	switch {
	case sealed, last > q.After && last >= told:
		return q, nil
	case q.Wait <= 0: // the keeper may know more than we do
		info, err := m.stat(ctx)
		if err == nil && info.Last > last {
			m.want(info.Last - 1)
			err = m.log.Wait(ctx, info.Last-1)
		}
		return q, err
	}
	until := q.After
	if told > last {
		until = max(until, told-1)
	}
	m.want(until)
	waitCtx, cancel := context.WithTimeout(ctx, q.Wait)
	defer cancel()
	if err := m.log.Wait(waitCtx, until); err != nil && ctx.Err() != nil {
		return q, context.Cause(ctx)
	}
	return q, nil
}

// took asks ahead once a reader has all that is known.
func (m *mirror) took(next spool.Seq) {
	if last, sealed := m.log.Last(); next >= last && !sealed {
		m.want(next)
	}
}

func (m *mirror) read(ctx context.Context, q spool.Query) (spool.Page, error) {
	m.enter()
	defer m.leave()
	q, err := m.ready(ctx, q)
	if err == nil {
		err = m.describe(ctx)
	}
	if err != nil {
		return spool.Page{}, err
	}
	events, err := m.log.Read(q.After, q.MaxBytes)
	if err != nil {
		return spool.Page{}, fmt.Errorf("run %s: %w", m.id, err)
	}
	page := spool.Page{Events: events, Next: q.After, Info: m.known()}
	if n := len(events); n > 0 {
		page.Next = events[n-1].Seq
	}
	if q.Wait > 0 {
		m.took(page.Next)
	}
	return page, nil
}

func (m *mirror) readRecords(ctx context.Context, q spool.Query, dst []byte) ([]byte, spool.Page, error) {
	q, err := m.ready(ctx, q)
	if err != nil {
		return dst, spool.Page{}, err
	}
	dst, next, err := m.log.ReadRecords(dst, q.After, q.MaxBytes)
	if err != nil {
		return dst, spool.Page{}, fmt.Errorf("run %s: %w", m.id, err)
	}
	if q.Wait > 0 {
		m.took(next)
	}
	return dst, spool.Page{Next: next, Info: m.known()}, nil
}

func (m *mirror) follow(ctx context.Context, after spool.Seq, yield func(spool.Event, error) bool) {
	m.enter()
	defer m.leave()
	for {
		page, err := m.read(ctx, spool.Query{After: after, MaxBytes: followPage, Wait: time.Hour})
		if err != nil {
			yield(spool.Event{}, err)
			return
		}
		for i := range page.Events {
			if !yield(page.Events[i], nil) {
				return
			}
		}
		if page.End() {
			return
		}
		after = page.Next
	}
}

// followPage is how much a follower takes out of the log at a time.
const followPage = 256 << 10
