package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/eventlog"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/store"
)

// run is one run of this host, or a finished one that was opened for reading.
type run struct {
	log      *eventlog.Log
	journal  *store.Journal // nil without a state directory
	blobs    *store.Store
	input    *inputQueue // nil in a run opened for reading
	controls controlIDs
	host     *Host // nil in a run opened for reading
	// notification is the run that tells of the end of this one; nil if there is
	// none, or it was started.
	notification *spool.Spec

	workspaceDir string        // where the workspace is; empty without
	sessionEnded chan struct{} // closed before the changes in the workspace are recorded

	started  chan struct{} // closed once the start succeeded or failed
	startErr error         // set before started is closed
	done     chan struct{} // closed once the log is complete

	mu      sync.Mutex
	info    spool.Info // all but Last
	session engine.Session
	used    time.Time
	readers int
	retired bool
	removed bool         // its log was deleted; a reader in the middle of it may be left
	refused error        // why the log accepts no more events
	unsaid  *spool.Event // the outcome, if the log did not accept it
	turns   []spool.Seq  // that have no done event, oldest first
	account account
	// exceeded is why the run is killed because of its workspace; empty if not.
	exceeded string

	marking    bool // its next event marks it in the news of the host, whose mutex guards it
	noting     bool // in the notes of the host, whose mutex guards it
	incomplete bool // the log on disk lacks its end; set before done is closed
}

func newRun(ctx context.Context, info spool.Info) *run {
	r := &run{info: info, started: make(chan struct{}), done: make(chan struct{}), used: time.Now()}
	if info.Workspace != nil {
		r.sessionEnded = make(chan struct{})
	}
	r.input = newInputQueue(ctx, r.Append)
	r.input.putBlob = r.PutBlob
	r.input.asks.changed = r.noteAsks
	return r
}

// openRun returns a run of the state directory for reading.
func openRun(ctx context.Context, id spool.RunID, j *store.Journal) *run {
	r := newRun(ctx, j.Info())
	last, sealed := j.Last()
	r.journal = j
	r.log = eventlog.New(eventlog.Options{Run: id, Tier: j, Last: last, Sealed: sealed})
	r.input = nil
	close(r.started)
	close(r.done)
	return r
}

// begin records a successful start.
func (r *run) begin(s engine.Session) {
	r.mu.Lock()
	r.session = s
	r.info.Pid = s.Pid()
	if i, ok := s.(engine.Isolated); ok {
		r.info.Isolation = i.Isolation()
	}
	r.mu.Unlock()
	r.input.begin(s)
	if r.journal != nil {
		r.host.notes.add(r)
	}
	close(r.started)
	r.tell()
}

// fail records a failed start.
func (r *run) fail(err error) {
	r.startErr = err
	close(r.started)
	close(r.done)
}

// PutBlob implements [engine.Sink].
func (r *run) PutBlob(mime string, content io.Reader) (spool.Blob, error) {
	if r.blobs == nil {
		return spool.Blob{}, fmt.Errorf("put blob: %w without a state directory", spool.ErrUnsupported)
	}
	return r.blobs.PutBlob(mime, content)
}

// Keeps implements [engine.Forgetful].
func (r *run) Keeps(size int) bool { return r.log.Keeps(size) }

// Info returns the current description of the run.
func (r *run) Info() spool.Info {
	// In this order: the state is set before its event is appended and must not
	// be older than the last event.
	var last spool.Seq
	var sealed bool
	if r.isStarted() { // otherwise its log is being created
		last, sealed = r.log.Last()
	}
	r.mu.Lock()
	info := r.info
	r.mu.Unlock()
	info.Last = last
	if info.State == spool.StateClosed && !sealed {
		info.State = spool.StateExited // the closed event will follow
	}
	return info
}

// describe has the engine say what it knows about the run.
func (r *run) describe() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d, ok := r.session.(engine.Describer); ok {
		r.info.Details = d.Details()
	}
}

// Stat is Info with the details of the engine.
func (r *run) Stat() spool.Info {
	info := r.Info()
	r.mu.Lock()
	d, ok := r.session.(engine.Describer)
	r.mu.Unlock()
	if ok {
		info.Details = d.Details()
	}
	return info
}

func (r *run) isStarted() bool {
	select {
	case <-r.started:
		return r.startErr == nil
	default:
		return false
	}
}

func (r *run) isDone() bool {
	select {
	case <-r.done:
		return true
	default:
		return false
	}
}

func (r *run) lastUse() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.used
}

// enter keeps the run's files open for a reader.
func (r *run) enter() {
	r.mu.Lock()
	r.readers++
	r.mu.Unlock()
}

func (r *run) leave() {
	r.mu.Lock()
	r.readers--
	r.used = time.Now()
	release := r.retired && r.readers == 0
	r.mu.Unlock()
	if release {
		_ = r.release() // opened for reading: nothing is lost
	}
}

// retire closes the run's files after the last reader.
func (r *run) retire() {
	r.mu.Lock()
	r.retired = true
	release := r.readers == 0
	r.mu.Unlock()
	if release {
		_ = r.release()
	}
}

func (r *run) release() error {
	if r.journal == nil {
		return nil
	}
	return r.journal.Close()
}

func (r *run) read(ctx context.Context, q spool.Query) (spool.Page, error) {
	r.enter()
	defer r.leave()
	q, err := r.await(ctx, q)
	if err != nil {
		return spool.Page{}, err
	}
	events, err := r.log.Read(q.After, q.MaxBytes)
	if err != nil {
		return spool.Page{}, fmt.Errorf("run %s: %w", r.info.ID, err)
	}
	page := spool.Page{Events: events, Next: q.After, Info: r.Info()}
	if n := len(events); n > 0 {
		page.Next = events[n-1].Seq
	}
	return page, nil
}

// recent returns the part of the log after a cursor that is in memory.
func (r *run) recent(after spool.Seq, maxBytes int) spool.Page {
	page := spool.Page{Events: r.log.Recent(after, maxBytes), Next: after, Info: r.Info()}
	if n := len(page.Events); n > 0 {
		page.Next = page.Events[n-1].Seq
	}
	return page
}

func (r *run) readRecords(ctx context.Context, q spool.Query, relay *eventlog.Relay) (*record.Batch, spool.Page, error) {
	q, err := r.await(ctx, q)
	if err != nil {
		return nil, spool.Page{}, err
	}
	batch, next, err := relay.Next(q.After)
	if err != nil {
		return nil, spool.Page{}, fmt.Errorf("run %s: %w", r.info.ID, err)
	}
	return batch, spool.Page{Next: next, Info: r.Info()}, nil
}

// await waits as the query requires, and fills in its default.
func (r *run) await(ctx context.Context, q spool.Query) (spool.Query, error) {
	if q.MaxBytes <= 0 {
		q.MaxBytes = spool.DefaultPageBytes
	}
	if q.Wait <= 0 {
		return q, nil
	}
	if last, sealed := r.log.Last(); last > q.After || sealed {
		return q, nil
	}
	waitCtx, cancel := context.WithTimeout(ctx, q.Wait)
	defer cancel()
	if err := r.log.Wait(waitCtx, q.After); err != nil && ctx.Err() != nil {
		return q, context.Cause(ctx)
	}
	return q, nil
}

func (r *run) follow(ctx context.Context, after spool.Seq, yield func(spool.Event, error) bool) {
	r.enter()
	defer r.leave()
	for e, err := range r.log.Follow(ctx, after) {
		if err != nil {
			err = fmt.Errorf("run %s: %w", r.info.ID, err)
		}
		if !yield(e, err) {
			return
		}
	}
}

func (r *run) send(ctx context.Context, in spool.Input) (spool.Receipt, error) {
	if r.input == nil {
		if r.Info().State != spool.StateClosed {
			return spool.Receipt{}, r.foreign()
		}
		return spool.Receipt{}, fmt.Errorf("run %s: %w", r.info.ID, spool.ErrInputClosed)
	}
	receipt, err := r.input.put(ctx, in)
	if err != nil {
		return receipt, fmt.Errorf("run %s: %w", r.info.ID, err)
	}
	return receipt, nil
}

// control does a control, once for each ID.
func (r *run) control(ctx context.Context, c spool.Control) error {
	return r.controls.once(ctx, c.ID, func() error { return r.act(ctx, c) })
}

func (r *run) act(ctx context.Context, c spool.Control) error {
	r.mu.Lock()
	session := r.session
	r.mu.Unlock()
	ending := c.Op == spool.ControlStop || c.Op == spool.ControlKill
	switch {
	case session != nil && !r.isDone() && (ending || r.Info().State != spool.StateClosed):
		if c.Op == spool.ControlInterrupt && c.Turn == 0 && r.input != nil {
			r.input.delivered(ctx)
		}
		if err := session.Control(ctx, c); err != nil && !(ending && errors.Is(err, spool.ErrEnded)) {
			return fmt.Errorf("run %s: %w", r.info.ID, err)
		}
		return nil
	case ending && r.Info().State == spool.StateClosed:
		return nil
	case r.Info().State != spool.StateClosed:
		return r.foreign()
	}
	return fmt.Errorf("run %s: %w", r.info.ID, spool.ErrEnded)
}

// foreign is the error for a live run of another host.
func (r *run) foreign() error {
	return fmt.Errorf("run %s: %w: it belongs to host %s", r.info.ID, spool.ErrUnsupported, r.info.Owner)
}

// kill kills the run.
func (r *run) kill() {
	<-r.started
	r.mu.Lock()
	session := r.session
	r.mu.Unlock()
	if session != nil {
		_ = session.Control(context.Background(), spool.Control{Op: spool.ControlKill})
	}
}
