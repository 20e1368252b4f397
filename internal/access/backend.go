package access

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// Guard gives every subject its part of a backend. It is safe for concurrent use.
type Guard struct {
	backend spool.Backend
	audit   *Audit // nil without one

	uncounted atomic.Int64 // refusals that are not in the audit log yet

	mu       sync.Mutex
	accounts map[string]*account // by name of the subject; only of those with quotas
}

// NewGuard returns a guard of a backend. The audit log may be nil.
func NewGuard(b spool.Backend, audit *Audit) *Guard {
	return &Guard{backend: b, audit: audit, accounts: make(map[string]*account)}
}

// Backend returns what a subject, connected from an address, may use of the
// backend. For the owner without an audit log that is the backend itself.
//
// Another subject's run is [spool.ErrNotFound] in every method. A missing scope
// is [spool.ErrDenied], before anything else. A quota is [spool.ErrBusy] if it
// frees up by itself, and otherwise [spool.ErrDenied].
func (g *Guard) Backend(s *Subject, from string) spool.Backend {
	if s.IsOwner() && g.audit == nil {
		return g.backend
	}
	return &backend{guard: g, inner: g.backend, subject: s, from: from, account: g.account(s),
		read: make(map[spool.RunID]bool), typed: make(map[spool.RunID]int64), blobs: make(map[blobOf]bool)}
}

// Connected writes the beginning of a connection to the audit log.
func (g *Guard) Connected(s *Subject, from string) {
	_ = g.audit.write(Entry{Act: ActConnect, Subject: s.String(), From: from})
}

// Disconnected writes the end of a connection to the audit log. The backend is
// that of [Guard.Backend], and the reason is empty if the client left.
func (g *Guard) Disconnected(s *Subject, from string, used spool.Backend, reason string) {
	if b, ok := used.(*backend); ok {
		b.noteTyped()
	}
	_ = g.audit.write(Entry{Act: ActDisconnect, Subject: s.String(), From: from, Reason: reason})
}

// Note writes what a subject did, that its backend does not know of, to the audit
// log.
func (g *Guard) Note(s *Subject, from string, e Entry) {
	e.Subject, e.From = s.String(), from
	_ = g.audit.write(e)
}

// Denied writes a refusal to the audit log. Many refusals of one source are only
// counted.
func (g *Guard) Denied(s *Subject, from, act string, err error) {
	if g.audit == nil {
		return
	}
	e := Entry{Act: ActDenied, From: from, What: act, Reason: reason(err)}
	var refusal *Refusal
	if errors.As(err, &refusal) {
		if refusal.repeated {
			g.uncounted.Add(1)
			return
		}
		e.Reason = refusal.Text
		e.Count = int(g.uncounted.Swap(0))
	}
	if s != nil {
		e.Subject = s.String()
	}
	_ = g.audit.write(e)
}

// account returns the account of a subject with quotas.
func (g *Guard) account(s *Subject) *account {
	if s.Quotas == (Quotas{}) {
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	a, ok := g.accounts[s.Name]
	if !ok {
		a = new(account)
		g.accounts[s.Name] = a
	}
	return a
}

// describer is a backend that knows what does not change about a run without
// asking the process that owns it.
type describer interface {
	Describe(ctx context.Context, id spool.RunID) (spool.Info, error)
}

// backend is what one subject may use of a backend.
type backend struct {
	guard   *Guard
	inner   spool.Backend
	subject *Subject
	from    string
	account *account // nil without quotas

	mu    sync.Mutex
	read  map[spool.RunID]bool  // runs that were read
	typed map[spool.RunID]int64 // bytes of standard input that were not
	blobs map[blobOf]bool       // blobs that events of a run refer to
}

// blobOf is a blob of a run.
type blobOf struct {
	run    spool.RunID
	digest spool.Digest
}

var (
	_ spool.Backend    = (*backend)(nil)
	_ spool.Executor   = (*backend)(nil)
	_ record.Follower  = (*backend)(nil)
	_ spool.Remover    = (*backend)(nil)
	_ spool.Renamer    = (*backend)(nil)
	_ spool.Meter      = (*backend)(nil)
	_ spool.Workspaces = (*backend)(nil)
)

// maxNoted is how many runs and blobs are remembered of a connection.
const maxNoted = 4096

// Label returns the name of the subject that a run belongs to; it is empty for
// a run of the owner.
func Label(info *spool.Info) string { return info.Labels[LabelSubject] }

// deny writes a refusal to the audit log and returns it.
func (b *backend) deny(act string, id spool.RunID, err error) error {
	if errors.Is(err, spool.ErrDenied) || errors.Is(err, spool.ErrBusy) || errors.Is(err, spool.ErrNotFound) {
		_ = b.guard.audit.write(Entry{Act: ActDenied, Subject: b.subject.String(), From: b.from, Run: id, What: act, Reason: reason(err)})
	}
	return err
}

// reason returns the sentinel of an error: its text may hold what a client sent.
func reason(err error) string {
	for _, sentinel := range []error{spool.ErrDenied, spool.ErrBusy, spool.ErrNotFound} {
		if errors.Is(err, sentinel) {
			return sentinel.Error()
		}
	}
	return ""
}

// enter checks that the subject has a scope and that the run is the subject's. It
// returns what does not change about the run.
func (b *backend) enter(ctx context.Context, act string, scope Scope, id spool.RunID) (spool.Info, error) {
	if err := b.subject.Scopes.Require(scope); err != nil {
		return spool.Info{}, b.deny(act, id, err)
	}
	describe := b.inner.Stat
	if d, ok := b.inner.(describer); ok {
		describe = d.Describe
	}
	info, err := describe(ctx, id)
	if err != nil {
		return spool.Info{}, err
	}
	if !b.owns(&info) {
		return spool.Info{}, b.deny(act, id, notFound(id))
	}
	return info, nil
}

// owns reports whether the subject may know of a run.
func (b *backend) owns(info *spool.Info) bool {
	return b.subject.Sees(info)
}

// notFound is the error that an unknown run has, too.
func notFound(id spool.RunID) error { return fmt.Errorf("run %.140s: %w", id, spool.ErrNotFound) }

// Start implements [spool.Backend].
func (b *backend) Start(ctx context.Context, spec spool.Spec) (spool.Info, error) {
	return b.start(ctx, spec, b.inner.Start)
}

// Execute implements [spool.Executor].
func (b *backend) Execute(ctx context.Context, spec spool.Spec) (spool.Info, error) {
	e, ok := b.inner.(spool.Executor)
	if !ok {
		return spool.Info{}, fmt.Errorf("%w: a start that waits for the end", spool.ErrUnsupported)
	}
	if spec.ID == "" {
		spec.ID = spool.RunID(strings.ToLower(rand.Text()[:16])) // for the audit log, if the wait ends first
	}
	return b.start(ctx, spec, e.Execute)
}

// start starts a run of the subject with begin.
func (b *backend) start(ctx context.Context, spec spool.Spec, begin func(context.Context, spool.Spec) (spool.Info, error)) (spool.Info, error) {
	engine := cmp.Or(spec.Engine, spool.EngineProcess)
	if err := b.checkStart(ctx, engine, &spec); err != nil {
		return spool.Info{}, b.deny(ActStart, spec.ID, err)
	}
	undo, err := b.reserve(ctx, engine, &spec)
	if err != nil && b.exists(ctx, spec.ID) { // a repeated start needs no quota
		undo, err = func() {}, nil
	}
	if err != nil {
		return spool.Info{}, b.deny(ActStart, spec.ID, err)
	}
	if !b.subject.IsOwner() {
		labels := make(map[string]string, len(spec.Labels)+1)
		maps.Copy(labels, spec.Labels)
		maps.Copy(labels, b.subject.Labels)
		labels[LabelSubject] = b.subject.Name
		spec.Labels = labels
	}
	info, err := begin(ctx, spec)
	switch {
	case err == nil && (Label(&info) != b.subject.Name || !b.subject.Sees(&info)):
		err = fmt.Errorf("start run %s: %w", spec.ID, spool.ErrExists)
	case err != nil && ctx.Err() != nil && b.exists(context.WithoutCancel(ctx), spec.ID): // it goes on
		b.note(Entry{Act: ActStart, Run: spec.ID, What: engine})
		return spool.Info{}, err
	}
	if err != nil {
		undo()
		return spool.Info{}, err
	}
	b.note(Entry{Act: ActStart, Run: info.ID, What: engine})
	return info, nil
}

// checkStart checks what needs no knowledge of other runs of the subject.
func (b *backend) checkStart(ctx context.Context, engine string, spec *spool.Spec) error {
	if err := b.subject.Scopes.Require(StartOf(engine)); err != nil {
		return err
	}
	if len(spec.Notify) > 0 { // it is a process
		if err := b.subject.Scopes.Require(StartOf(spool.EngineProcess)); err != nil {
			return err
		}
	}
	if len(b.subject.Runs) > 0 {
		return fmt.Errorf("%w: the token is for some runs only", spool.ErrDenied)
	}
	if engine == AuditEngine {
		return fmt.Errorf("%w: only the server starts runs of the engine %s", spool.ErrDenied, AuditEngine)
	}
	if err := CheckLabels(spec.Labels); err != nil {
		return err
	}
	if err := b.guard.audit.broken(); err != nil {
		return err
	}
	return b.checkConfig(ctx, engine, spec.Config)
}

// exists reports whether the subject has a run with that id.
func (b *backend) exists(ctx context.Context, id spool.RunID) bool {
	if id == "" {
		return false
	}
	info, err := b.inner.Stat(ctx, id)
	return err == nil && Label(&info) == b.subject.Name && b.subject.Sees(&info)
}

// Stat implements [spool.Backend].
func (b *backend) Stat(ctx context.Context, id spool.RunID) (spool.Info, error) {
	if err := b.subject.Scopes.Require(Read); err != nil {
		return spool.Info{}, b.deny(ActRead, id, err)
	}
	info, err := b.inner.Stat(ctx, id)
	if err == nil && !b.owns(&info) {
		return spool.Info{}, b.deny(ActRead, id, notFound(id))
	}
	return info, err
}

// List implements [spool.Backend].
func (b *backend) List(ctx context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	if err := b.subject.Scopes.Require(Read); err != nil {
		err = b.deny(ActList, "", err)
		return func(yield func(spool.Info, error) bool) { yield(spool.Info{}, err) }
	}
	if len(b.subject.Runs) > 0 {
		return b.listRuns(ctx, f)
	}
	if b.subject.Scopes.Has(Admin) {
		return b.inner.List(ctx, f)
	}
	if of, ok := f.Labels[LabelSubject]; ok && of != b.subject.Name {
		return func(yield func(spool.Info, error) bool) {
			if err := f.Check(); err != nil {
				yield(spool.Info{}, fmt.Errorf("list runs: %w", err))
			}
		}
	}
	labels := make(map[string]string, len(f.Labels)+1)
	maps.Copy(labels, f.Labels)
	for k, v := range b.subject.Labels {
		if got, ok := labels[k]; ok && got != v {
			return func(func(spool.Info, error) bool) {}
		}
		labels[k] = v
	}
	labels[LabelSubject] = b.subject.Name
	f.Labels = labels
	return func(yield func(spool.Info, error) bool) {
		unreadable := false
		for info, err := range b.inner.List(ctx, f) {
			switch {
			case err == nil && b.owns(&info):
				unreadable = false
			case err == nil:
				continue
			case errors.Is(err, spool.ErrInvalid), errors.Is(err, spool.ErrClosed), ctx.Err() != nil:
			default:
				// It may be an error of one run, and that run another
				// subject's. Only an error that ends the list is reported.
				unreadable = true
				continue
			}
			if !yield(info, err) {
				return
			}
		}
		if unreadable {
			yield(spool.Info{}, errors.New("list runs: some runs cannot be read"))
		}
	}
}

// Read implements [spool.Backend].
func (b *backend) Read(ctx context.Context, id spool.RunID, q spool.Query) (spool.Page, error) {
	gone, err := b.enterPage(ctx, id)
	if err != nil {
		return spool.Page{}, err
	}
	page, err := b.inner.Read(ctx, id, q)
	if err != nil {
		return page, err
	}
	if gone && !b.owns(&page.Info) {
		return spool.Page{}, notFound(id)
	}
	if b.account != nil {
		size := 0
		for i := range page.Events {
			size += page.Events[i].Size()
		}
		err = b.pay(ctx, size)
	}
	return page, err
}

// enterPage is enterRead for a reader of pages, who may go on in a run that was
// removed: gone says that the page tells whose it was.
func (b *backend) enterPage(ctx context.Context, id spool.RunID) (gone bool, err error) {
	err = b.enterRead(ctx, id)
	if !errors.Is(err, spool.ErrNotFound) {
		return false, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.read[id] {
		return false, err
	}
	return true, nil
}

// enterRead checks a read, and writes the first one of a run to the audit log.
func (b *backend) enterRead(ctx context.Context, id spool.RunID) error {
	if _, err := b.enter(ctx, ActRead, Read, id); err != nil {
		return err
	}
	b.mu.Lock()
	known := b.read[id]
	if len(b.read) >= maxNoted {
		clear(b.read)
	}
	b.read[id] = true
	b.mu.Unlock()
	if !known {
		b.note(Entry{Act: ActRead, Run: id})
	}
	return nil
}

// Follow implements [spool.Backend].
func (b *backend) Follow(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[spool.Event, error] {
	return func(yield func(spool.Event, error) bool) {
		if err := b.enterRead(ctx, id); err != nil {
			yield(spool.Event{}, err)
			return
		}
		follow := b.inner.Follow(ctx, id, after)
		if !b.isPaced() {
			follow(yield)
			return
		}
		for e, err := range follow {
			if err == nil {
				err = b.pay(ctx, e.Size())
			}
			if !yield(e, err) || err != nil {
				return
			}
		}
	}
}

// FollowRecords implements [record.Follower].
func (b *backend) FollowRecords(ctx context.Context, id spool.RunID, after spool.Seq) iter.Seq2[*record.Batch, error] {
	return func(yield func(*record.Batch, error) bool) {
		if err := b.enterRead(ctx, id); err != nil {
			yield(nil, err)
			return
		}
		follow := record.Follow(ctx, b.inner, id, after)
		if !b.isPaced() {
			follow(yield)
			return
		}
		for batch, err := range follow {
			if err == nil {
				batch.Drop() // paying may take a while
				err = b.pay(ctx, batch.Size())
			}
			if !yield(batch, err) || err != nil {
				return
			}
		}
	}
}

// Send implements [spool.Backend].
func (b *backend) Send(ctx context.Context, id spool.RunID, in spool.Input) (spool.Receipt, error) {
	e := Entry{Act: ActInput, Run: id, What: string(in.Kind), Bytes: int64(len(in.Bytes) + len(in.Data))}
	scope := Input
	if in.Kind == spool.InputAnswer {
		scope = Answer
		e.Act, e.Bytes = ActAnswer, 0
		var a spool.Answer
		if json.Unmarshal(in.Data, &a) == nil {
			e.Ask = a.Ask
			if !b.subject.IsOwner() {
				a.By = b.subject.Name // the subject is who answers, whatever the client says
				if data, err := json.Marshal(a); err == nil {
					in.Data = data
				}
			}
		}
	}
	info, err := b.enter(ctx, e.Act, scope, id)
	if err == nil {
		err = b.checkChange(&info, e.Act)
	}
	if err == nil && (in.Kind == spool.InputCell || in.Kind == spool.InputPrompt) {
		if err = b.checkTurn(ctx); err != nil {
			err = b.deny(e.Act, id, err)
		}
	}
	if err != nil {
		return spool.Receipt{}, err
	}
	receipt, err := b.inner.Send(ctx, id, in)
	if err != nil || receipt.Repeated {
		return receipt, err
	}
	if in.Kind == spool.InputStdin {
		b.noteStdin(e)
	} else {
		b.note(e)
	}
	return receipt, nil
}

// noteStdin writes that the subject types to a run to the audit log once. How much
// it was is written at the end of the connection.
func (b *backend) noteStdin(e Entry) {
	if b.guard.audit == nil {
		return
	}
	b.mu.Lock()
	bytes, known := b.typed[e.Run]
	full := !known && len(b.typed) >= maxNoted
	b.mu.Unlock()
	if full {
		b.noteTyped()
	}
	b.mu.Lock()
	b.typed[e.Run] = bytes + e.Bytes
	b.mu.Unlock()
	if !known {
		e.Bytes = 0
		b.note(e)
	}
}

// noteTyped writes how much was typed to each run to the audit log.
func (b *backend) noteTyped() {
	b.mu.Lock()
	typed := b.typed
	b.typed = make(map[spool.RunID]int64)
	b.mu.Unlock()
	for id, n := range typed {
		b.note(Entry{Act: ActInput, Run: id, What: string(spool.InputStdin), Bytes: n})
	}
}

// checkChange checks that a run may be changed: the audit log never by a client,
// and others only if the change can be written to the audit log.
func (b *backend) checkChange(info *spool.Info, act string) error {
	if info.Engine == AuditEngine {
		return b.deny(act, info.ID, fmt.Errorf("run %s: %w: clients cannot change the audit log", info.ID, spool.ErrDenied))
	}
	return b.guard.audit.broken()
}

// Control implements [spool.Backend].
func (b *backend) Control(ctx context.Context, id spool.RunID, c spool.Control) error {
	info, err := b.enter(ctx, ActControl, Control, id)
	if err == nil {
		err = b.checkChange(&info, ActControl)
	}
	if err != nil {
		return err
	}
	if !b.subject.IsOwner() {
		c.By = b.subject.Name // whatever the client says
	}
	if err := b.inner.Control(ctx, id, c); err != nil {
		return err
	}
	b.note(Entry{Act: ActControl, Run: id, What: string(c.Op)})
	return nil
}

// Blob implements [spool.Backend]. Blobs of all runs are in one place, so for a
// subject that does not see all runs an event of this run must refer to it.
func (b *backend) Blob(ctx context.Context, id spool.RunID, d spool.Digest) (io.ReadCloser, error) {
	if err := b.enterRead(ctx, id); err != nil {
		return nil, err
	}
	r, err := b.inner.Blob(ctx, id, d)
	if err != nil {
		return nil, err
	}
	if !b.subject.Scopes.Has(Admin) {
		if err := b.refersTo(ctx, id, d); err != nil {
			return nil, errors.Join(err, r.Close())
		}
	}
	if b.isPaced() {
		return &pacedReader{r, ctx, b}, nil
	}
	return r, nil
}

// refersTo returns [spool.ErrNotFound] if no event of a run refers to a blob. It
// remembers what it found: a client reads a large blob in many requests.
func (b *backend) refersTo(ctx context.Context, id spool.RunID, d spool.Digest) error {
	b.mu.Lock()
	known := b.blobs[blobOf{id, d}]
	b.mu.Unlock()
	if known {
		return nil
	}
	for q := (spool.Query{MaxBytes: record.BatchBytes}); ; {
		page, err := b.inner.Read(ctx, id, q)
		if err != nil {
			return err
		}
		for i := range page.Events {
			if bytes.Contains(page.Events[i].Data, []byte(d)) {
				b.mu.Lock()
				defer b.mu.Unlock()
				if len(b.blobs) >= maxNoted {
					clear(b.blobs)
				}
				b.blobs[blobOf{id, d}] = true
				return nil
			}
		}
		if page.Next == q.After || page.Next >= page.Info.Last {
			return fmt.Errorf("blob %.80s of run %s: %w", d, id, spool.ErrNotFound)
		}
		q.After = page.Next
	}
}

// note writes what the subject did to the audit log.
func (b *backend) note(e Entry) {
	if b.guard.audit == nil {
		return
	}
	e.Subject, e.From = b.subject.String(), b.from
	_ = b.guard.audit.write(e) // fails only when the server ends
}
