package access

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// AuditEngine is the engine whose runs are audit logs. Only the server starts
// them.
const AuditEngine = "audit"

// LabelAudit labels the audit log of a server with the server's own id.
const LabelAudit = record.LabelAudit

// The acts of an audit log.
const (
	ActConnect    = "connect"
	ActDisconnect = "disconnect"
	ActStart      = "start"
	ActList       = "list" // only if it was refused
	ActRead       = "read" // the first time on a connection
	ActSearch     = "search"
	ActInput      = "input"
	ActAnswer     = "answer"
	ActControl    = "control"
	ActDelete     = "delete"
	ActRename     = "rename"
	ActApply      = "apply"
	ActDiscard    = "discard"
	ActLogin      = "login"
	ActLogout     = "logout"
	ActShare      = "share"  // What is the id of the share
	ActToken      = "token"  // What is the id of the token
	ActRevoke     = "revoke" // What is the id of a share or a token
	ActFiles      = "files"  // only if it was refused
	ActDenied     = "denied" // What is the act that was refused
)

// Entry says who did what. It never holds what was sent or read.
type Entry struct {
	Act     string      `json:"act"`
	Subject string      `json:"subject,omitempty"` // empty if unknown
	From    string      `json:"from,omitempty"`    // address
	Run     spool.RunID `json:"run,omitempty"`
	What    string      `json:"what,omitempty"` // engine, kind of input, control, or act
	Ask     spool.Seq   `json:"ask,omitempty"`  // that was answered
	Bytes   int64       `json:"bytes,omitempty"`
	Reason  string      `json:"reason,omitempty"` // of a refusal
	// Count is how many more of the same kind were not written since the last
	// one.
	Count int       `json:"count,omitempty"`
	Time  time.Time `json:"time"`
}

// text returns the entry for people.
func (e *Entry) text() string {
	who := e.Subject
	if who == "" {
		who = "someone"
	}
	if e.From != "" {
		who += " from " + e.From
	}
	s := fmt.Sprintf("%s: %s", who, e.Act)
	if e.What != "" {
		s += " " + e.What
	}
	if e.Run != "" {
		s += " of run " + string(e.Run)
	}
	if e.Reason != "" {
		s += ": " + e.Reason
	}
	if e.Count > 0 {
		s += fmt.Sprintf(" (and %d more)", e.Count)
	}
	return s
}

const (
	// auditQueue is how many entries wait to be written. When there are more,
	// those who act wait.
	auditQueue = 1024
	auditBatch = 64 << 10 // bytes of entries in one write
	auditRetry = time.Second
	// auditPatience is how long one who acts waits for room in the queue. After
	// that the log is broken, and the entry is lost.
	auditPatience = 5 * time.Second
	// auditLease is how long an audit log stays open after its server died.
	auditLease = 30 * time.Second
)

// Audit is the audit log of a server: a run whose events say who did what. A nil
// Audit writes nothing.
type Audit struct {
	backend spool.Backend
	id      string
	log     *slog.Logger
	entries chan Entry

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	done   chan struct{} // closed when everything is written

	mu     sync.Mutex
	run    spool.RunID
	err    error // why the log cannot be written at the moment
	closed bool
}

// leaser is a backend whose runs outlive this process; see package keeper.
type leaser interface {
	Lease(ctx context.Context, key, value string, ttl time.Duration) error
	Release(ctx context.Context, key, value string) error
}

// OpenAudit starts the audit log of a server with an id.
func OpenAudit(ctx context.Context, b spool.Backend, id string, log *slog.Logger) (*Audit, error) {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	a := &Audit{backend: b, id: id, log: log, entries: make(chan Entry, auditQueue), done: make(chan struct{})}
	if err := a.start(ctx); err != nil {
		return nil, fmt.Errorf("start the audit log: %w", err)
	}
	a.ctx, a.cancel = context.WithCancel(context.Background())
	go a.writeAll()
	return a, nil
}

// start starts the run.
func (a *Audit) start(ctx context.Context) error {
	if l, ok := a.backend.(leaser); ok {
		if err := l.Lease(ctx, LabelAudit, a.id, auditLease); err != nil {
			return err
		}
	}
	info, err := a.backend.Start(ctx, spool.Spec{Engine: AuditEngine, Name: "audit", Stdin: true, Labels: map[string]string{LabelAudit: a.id}})
	if err != nil {
		return err
	}
	a.mu.Lock()
	a.run = info.ID
	a.mu.Unlock()
	return nil
}

// Run returns the id of the log.
func (a *Audit) Run() spool.RunID {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.run
}

// Close writes what waits and ends the log.
func (a *Audit) Close() error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	again := a.closed
	a.closed = true
	a.mu.Unlock()
	if again {
		return nil
	}
	a.cancel()
	<-a.done
	ctx := context.Background()
	_, err := a.backend.Send(ctx, a.Run(), spool.Input{Kind: spool.InputEOF})
	if errors.Is(err, spool.ErrInputClosed) {
		err = nil
	}
	if l, ok := a.backend.(leaser); ok {
		err = errors.Join(err, l.Release(ctx, LabelAudit, a.id))
	}
	if err != nil {
		return fmt.Errorf("end the audit log: %w", err)
	}
	return nil
}

// broken returns an error while the log cannot be written.
func (a *Audit) broken() error {
	if a == nil {
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		return fmt.Errorf("%w: the audit log cannot be written: %w", spool.ErrBusy, a.err)
	}
	return nil
}

// write queues an entry. It waits while the queue is full, but not for ever: a
// connection must be able to end.
func (a *Audit) write(e Entry) error {
	if a == nil {
		return nil
	}
	e.Time = time.Now().UTC()
	select {
	case a.entries <- e:
		return nil
	default:
	}
	timer := time.NewTimer(auditPatience)
	defer timer.Stop()
	err := spool.ErrBusy
	select {
	case a.entries <- e:
		return nil
	case <-timer.C:
	case <-a.ctx.Done():
		err = spool.ErrClosed
	}
	a.log.Error("an entry of the audit log is lost", "entry", e.text())
	return fmt.Errorf("write the audit log: %w", err)
}

// writeAll writes entries until Close, and then those that wait.
func (a *Audit) writeAll() {
	defer close(a.done)
	for {
		select {
		case e := <-a.entries:
			a.writeBatch(e)
		case <-a.ctx.Done():
			for {
				select {
				case e := <-a.entries:
					a.writeBatch(e)
				default:
					return
				}
			}
		}
	}
}

// writeBatch writes an entry and those that wait behind it. If the log was ended
// it starts another one, and it tries until that works or Close is called.
func (a *Audit) writeBatch(e Entry) {
	lines := e.line(nil)
fill:
	for len(lines) < auditBatch {
		select {
		case e = <-a.entries:
			lines = e.line(lines)
		default:
			break fill
		}
	}
	id := randomText(tokenIDSize)
	for {
		_, err := a.backend.Send(context.WithoutCancel(a.ctx), a.Run(), spool.Input{ID: id, Kind: spool.InputStdin, Bytes: lines})
		if err == nil {
			a.setErr(nil)
			return
		}
		if errors.Is(err, spool.ErrInputClosed) || errors.Is(err, spool.ErrEnded) || errors.Is(err, spool.ErrNotFound) {
			if err = a.start(a.ctx); err == nil {
				continue
			}
		}
		a.setErr(err)
		timer := time.NewTimer(auditRetry)
		select {
		case <-timer.C:
		case <-a.ctx.Done():
			timer.Stop()
			a.log.Error("entries of the audit log are lost", "bytes", len(lines), "err", err)
			return
		}
	}
}

func (a *Audit) setErr(err error) {
	a.mu.Lock()
	first := a.err == nil && err != nil
	a.err = err
	a.mu.Unlock()
	if first {
		a.log.Error("the audit log cannot be written", "err", err)
	}
}

// line appends the payload of the entry's event, a notice, as one line.
func (e *Entry) line(dst []byte) []byte {
	data, err := json.Marshal(e)
	if err == nil {
		data, err = json.Marshal(spool.Notice{Code: "audit", Text: e.text(), By: e.Subject, Data: data})
	}
	if err != nil { // plain fields always encode
		return dst
	}
	return append(append(dst, data...), '\n')
}
