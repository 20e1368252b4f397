package keeper

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/eventlog"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/pause"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/store"
	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// mirror is a run of a keeper as this process sees it. It reads the log from
// its files; updates from the keeper say where the log ends. It asks for an
// update only when a reader has read everything, so that a fast run costs one
// request for many events.
type mirror struct {
	backend *Backend
	id      spool.RunID
	owner   string // the keeper
	journal *store.Journal
	log     *eventlog.Log
	gone    atomic.Bool // this process has deleted the log
	// archived is the state directory of a run that an archive had; nil for runs
	// of the state directory of the backend.
	archived *store.Store

	mu      sync.Mutex
	fetch   fetchState
	needed  spool.Seq  // a reader needs an event after this one
	statSeq spool.Seq  // the last event at the newest stat
	info    spool.Info // as of event infoSeq
	infoSeq spool.Seq
	facts   uint64 // the sum of what an update said of the run that mostly stays as it is; zero if info is not of one
	readers int    // running reads
	used    time.Time
}

// mirrorMemory is how many bytes of events a mirror keeps for readers that are a little
// behind: further behind they read the files.
const mirrorMemory = 32 << 10

func newMirror(b *Backend, info spool.Info, j *store.Journal) *mirror {
	last, sealed := j.Last()
	if sealed { // possibly after info was read
		info = j.Info()
	}
	m := &mirror{backend: b, id: info.ID, owner: info.Owner, journal: j, info: info, used: time.Now()}
	m.log = eventlog.New(eventlog.Options{Run: info.ID, Tier: j, Memory: mirrorMemory, Relays: b.relays, Last: last, Sealed: sealed})
	return m
}

// touch marks the mirror as used now.
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

// closed reports whether the mirror has the closed event.
func (m *mirror) closed() bool {
	_, sealed := m.log.Last()
	return sealed
}

// unused reports whether the backend may drop the mirror.
func (m *mirror) unused() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.readers == 0 && m.fetch == fetchIdle && m.closed()
}

// request has the mirror ask the keeper until it has an event after the cursor.
func (m *mirror) request(after spool.Seq) {
	m.mu.Lock()
	m.needed = max(m.needed, after)
	poll := false
	if m.lacking() {
		_, poll = m.step(fetchNeeded)
	}
	m.mu.Unlock()
	if poll {
		m.tryPoll()
	}
}

// expectFirst prepares the mirror of a run that this process has started for the
// first update, which the keeper sends without being asked. It reports false if
// the mirror already asks.
func (m *mirror) expectFirst() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	accepted, _ := m.step(fetchStarted)
	return accepted
}

// receiveFirst applies the first update, or nil if the keeper is gone.
func (m *mirror) receiveFirst(update *record.Update) {
	if update != nil {
		m.mu.Lock()
		info := m.info // as of the start
		m.mu.Unlock()
		update.Complete(info)
		_ = m.apply(update, 0) // after an error the mirror asks
	}
	m.mu.Lock()
	_, poll := m.step(m.outcome())
	m.mu.Unlock()
	if poll {
		m.tryPoll()
	}
}

// poll asks the keeper for an update if a reader still needs one, and does not wait for
// it: a run may say nothing for days, and thousands of runs would have a goroutine each.
func (m *mirror) poll() {
	for m.polling() {
		err := m.requestUpdate()
		if err == nil {
			return // receive or receiveNews goes on
		}
		_ = m.settle(m.backend.ctx, err) // and it asks again, unless the run is settled
	}
	m.backend.wg.Done()
}

// tryPoll is poll for a goroutine that must not block. If poll would have to wait,
// another goroutine does it.
func (m *mirror) tryPoll() {
	b := m.backend
	if !m.polling() {
		b.wg.Done()
		return
	}
	b.mu.Lock()
	k := b.keepers[m.owner]
	b.mu.Unlock()
	last, _ := m.log.Last()
	if k == nil || !k.tellsNews() || !k.tryAsk(m, m.id, last) {
		b.updates.Go(m.poll)
	}
}

// polling notes the outcome of an update, and reports whether another is needed.
func (m *mirror) polling() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.fetch.step(m.outcome())
	return m.fetch == fetchPolling
}

// requestUpdate has the keeper asked. Unless it returns an error, receiveNews or, of an
// older keeper, receive gets the answer.
func (m *mirror) requestUpdate() error {
	b := m.backend
	k, err := b.keeperOf(b.ctx, m.owner)
	if err != nil {
		return err
	}
	last, _ := m.log.Last()
	if k.tellsNews() {
		return k.ask(m, m.id, last)
	}
	return k.transport.rpc.Go(methodAwait, awaitParams{m.id, last}, func(result json.RawMessage, err error) {
		b.updates.Go(func() { m.receive(result, err) })
	})
}

// receive applies an update. If the keeper is gone, it settles the run.
func (m *mirror) receive(result json.RawMessage, err error) {
	var update record.Update
	if err = runproto.DecodeError(err); err == nil {
		err = rpc.Decode(methodAwait, result, &update)
	}
	if err == nil {
		_ = m.apply(&update, 0) // after an error it is asked for again
	} else {
		_ = m.settle(m.backend.ctx, err)
	}
	m.poll()
}

// receiveNews implements [newsReceiver]. What may take long is done by another goroutine.
func (m *mirror) receiveNews(b []byte, err error) {
	var update record.Update
	var facts uint64
	if err = runproto.DecodeError(err); err == nil {
		facts, err = m.decodeNews(b, &update)
	}
	if err == nil && m.journal.Reaches(update.Segment) {
		_ = m.apply(&update, facts) // after an error it is asked for again
		m.tryPoll()
		return
	}
	later, failed := update, err // so that only these leave the stack
	m.backend.updates.Go(func() {
		if failed == nil {
			_ = m.apply(&later, facts)
		} else {
			_ = m.settle(m.backend.ctx, failed)
		}
		m.poll()
	})
}

// decodeNews decodes an update. What the mirror knows of the run is not decoded again.
func (m *mirror) decodeNews(b []byte, update *record.Update) (sum uint64, err error) {
	facts, rest, err := record.CutWhole(b)
	if err != nil {
		return 0, err
	}
	update.Info.ID = m.id
	if err := update.Decode(rest); err != nil {
		return 0, err
	}
	sum = maphash.Bytes(factsSeed, facts)
	m.mu.Lock()
	info, known := m.info, m.facts == sum
	m.mu.Unlock()
	if !known {
		if info, err = record.DecodeInfo(facts); err != nil {
			return 0, err
		}
	}
	update.Complete(info)
	return sum, nil
}

var factsSeed = maphash.MakeSeed()

// step applies an event to m.fetch. It reports whether it was accepted, and whether the
// caller must call tryPoll once it does not hold m.mu any more. Callers hold m.mu.
func (m *mirror) step(e fetchEvent) (accepted, poll bool) {
	accepted, poll = m.fetch.step(e)
	if poll {
		m.backend.wg.Add(1) // until no update is under way
	}
	return accepted, poll
}

// outcome returns the event that follows an update. Callers hold m.mu.
func (m *mirror) outcome() fetchEvent {
	if m.lacking() {
		return fetchLacking
	}
	return fetchDone
}

// lacking reports whether a reader needs an event that the mirror does not have.
// Callers hold m.mu.
func (m *mirror) lacking() bool {
	last, sealed := m.log.Last()
	return last <= m.needed && !sealed && m.backend.ctx.Err() == nil
}

// apply makes the events of an update visible. facts is the sum of those of its
// description; zero if there is none.
func (m *mirror) apply(u *record.Update, facts uint64) error {
	if err := m.journal.Advance(store.Position{
		Last: u.Last, Segment: u.Segment, Size: u.Size,
		Final: u.Info.State == spool.StateClosed && u.Last == u.Info.Last,
	}); err != nil {
		return err
	}
	m.mu.Lock()
	if u.Info.Last >= m.infoSeq {
		m.info, m.infoSeq, m.facts = u.Info, u.Info.Last, facts
	}
	single := m.readers <= 1
	m.mu.Unlock()
	if last, _ := m.log.Last(); single && u.Last >= last {
		m.log.Drop() // the reader that waits for more has read them
	}
	// The files end before the log if its last events did not fit. Otherwise
	// all events become visible in one step, so that no reader sees the last
	// event without knowing that it is the last.
	if u.Last < u.Info.Last && (len(u.Events) == 0 || u.Events[0].Seq > u.Last) {
		m.log.Adopt(u.Last, nil, false)
	}
	m.log.Adopt(u.Info.Last, u.Events, u.Info.State == spool.StateClosed)
	return nil
}

// settle is called when the keeper did not answer. If it died, its runs are
// settled; if it ended, it has completed them. Either way the files are complete
// then, and the mirror adopts them.
func (m *mirror) settle(ctx context.Context, cause error) error {
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
		m.info, m.facts = info, 0
		m.mu.Unlock()
		m.log.Adopt(last, nil, true)
		return nil
	}
	// The keeper lives, or another process is settling the run.
	if err := pause.For(ctx, retryAfter); err != nil {
		return errors.Join(err, cause)
	}
	return nil
}

// retryAfter is the pause before a keeper that did not answer is asked again.
const retryAfter = 20 * time.Millisecond

// stat describes the run now. The keeper of a live run may know of events that
// the mirror has not read.
func (m *mirror) stat(ctx context.Context) (spool.Info, error) {
	for !m.closed() {
		k, err := m.backend.keeperOf(ctx, m.owner)
		var info spool.Info
		if err == nil {
			err = k.call(ctx, methodStat, runproto.RunParams{Run: m.id}, &info)
		}
		switch {
		case err == nil:
			m.applyStat(info)
			return info, nil
		case !isGone(err) || ctx.Err() != nil || m.backend.ctx.Err() != nil:
			return spool.Info{}, err
		}
		if err := m.settle(ctx, err); err != nil {
			return spool.Info{}, err
		}
	}
	return m.description(), nil
}

// applyStat takes over the keeper's description of the run.
func (m *mirror) applyStat(info spool.Info) {
	last, _ := m.log.Last()
	m.mu.Lock()
	m.statSeq = max(m.statSeq, info.Last)
	current := info.Last == last && last >= m.infoSeq
	if current {
		m.info, m.infoSeq, m.facts = info, last, 0
	}
	m.mu.Unlock()
	if current && info.State == spool.StateClosed {
		// The mirror had the closed event but did not know it was the last.
		m.log.Adopt(last, nil, true)
	}
}

// refreshInfo makes sure that the description is not older than the log. It is
// older when the mirror was created from the files of a live run.
func (m *mirror) refreshInfo(ctx context.Context) error {
	for {
		last, sealed := m.log.Last()
		m.mu.Lock()
		current := m.infoSeq >= last
		m.mu.Unlock()
		if sealed || current {
			return nil
		}
		if err := m.catchUp(ctx, last); err != nil {
			return err
		}
	}
}

// newestStat returns the last event at the newest stat.
func (m *mirror) newestStat() spool.Seq {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.statSeq
}

// description describes the run as of the last event of the mirror.
func (m *mirror) description() (info spool.Info) {
	m.describe(&info)
	return info
}

// describe sets info to the description.
func (m *mirror) describe(info *spool.Info) {
	m.mu.Lock()
	defer m.mu.Unlock()
	*info = m.info
	last, sealed := m.log.Last()
	if info.State == spool.StateClosed && !sealed && last < info.Last {
		info.State = spool.StateExited // the mirror lacks the closed event
	}
	info.Last = last
}

// addReader keeps the mirror until removeReader.
func (m *mirror) addReader() {
	m.mu.Lock()
	m.readers++
	m.mu.Unlock()
}

func (m *mirror) removeReader() {
	m.mu.Lock()
	m.readers--
	m.used = time.Now()
	last := m.readers == 0
	m.mu.Unlock()
	if last && m.closed() {
		m.backend.mayBeUnused()
	}
}

// await waits as a query asks and returns the query with its default filled in.
// A reader may have its cursor from stat, so a read returns only when the mirror
// has all events that stat reported.
func (m *mirror) await(ctx context.Context, q spool.Query) (spool.Query, error) {
	if q.MaxBytes <= 0 {
		q.MaxBytes = spool.DefaultPageBytes
	}
	last, sealed := m.log.Last()
	reported := m.newestStat()
	switch {
	case sealed, last > q.After && last >= reported:
		return q, nil
	case q.Wait <= 0:
		return q, m.catchUp(ctx, last)
	}
	after := q.After
	if reported > last {
		after = max(after, reported-1)
	}
	m.request(after)
	waitCtx, cancel := context.WithTimeout(ctx, q.Wait)
	defer cancel()
	if err := m.log.Wait(waitCtx, after); err != nil && ctx.Err() != nil {
		return q, context.Cause(ctx)
	}
	return q, nil
}

// catchUp waits for the events that the keeper has after the last one.
func (m *mirror) catchUp(ctx context.Context, last spool.Seq) error {
	info, err := m.stat(ctx)
	if err == nil && info.Last > last {
		m.request(info.Last - 1)
		err = m.log.Wait(ctx, info.Last-1)
	}
	return err
}

// prefetch asks for the next event if the reader at this cursor has read
// everything.
func (m *mirror) prefetch(cursor spool.Seq) {
	if last, sealed := m.log.Last(); cursor >= last && !sealed {
		m.request(cursor)
	}
}

// read reads a page. It is passed by reference: many readers wait, and each copy of a
// page, which has the description of the run, would be on the stack of each of them.
func (m *mirror) read(ctx context.Context, q spool.Query, page *spool.Page) error {
	m.addReader()
	defer m.removeReader()
	q, err := m.await(ctx, q)
	if err != nil {
		return err
	}
	return m.page(ctx, q, page)
}

// page reads the events that there are after a cursor.
func (m *mirror) page(ctx context.Context, q spool.Query, page *spool.Page) error {
	if err := m.refreshInfo(ctx); err != nil {
		return err
	}
	events, err := m.log.Read(q.After, q.MaxBytes)
	if err != nil {
		return fmt.Errorf("run %s: %w", m.id, err)
	}
	page.Events, page.Next = events, q.After
	m.describe(&page.Info)
	if n := len(events); n > 0 {
		page.Next = events[n-1].Seq
	}
	if q.Wait > 0 {
		m.prefetch(page.Next)
	}
	return nil
}

// readRecords returns the records of a page. Callers are counted as a reader.
func (m *mirror) readRecords(ctx context.Context, q spool.Query, r *eventlog.Relay) (*record.Batch, spool.Page, error) {
	q, err := m.await(ctx, q)
	if err != nil {
		return nil, spool.Page{}, err
	}
	batch, next, err := r.Next(q.After)
	if err != nil {
		return nil, spool.Page{}, fmt.Errorf("run %s: %w", m.id, err)
	}
	if q.Wait > 0 {
		m.prefetch(next)
	}
	return batch, spool.Page{Next: next, Info: m.description()}, nil
}

func (m *mirror) follow(ctx context.Context, after spool.Seq, yield func(spool.Event, error) bool) {
	m.addReader()
	defer m.removeReader()
	for {
		var page spool.Page
		q, err := m.await(ctx, spool.Query{After: after, MaxBytes: followPage, Wait: time.Hour})
		if err == nil {
			err = m.page(ctx, q, &page)
		}
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

// followPage is the number of bytes that a follower reads at a time.
const followPage = 256 << 10
