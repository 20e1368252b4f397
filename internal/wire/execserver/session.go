package execserver

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/lazyregexp"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// Labels of the runs that are processes of a session. A later server with the
// same state finds the session by them.
const (
	labelPrefix  = "exec-server." // of labels that clients cannot set
	labelSession = labelPrefix + "session"
	labelProcess = labelPrefix + "process"
	labelServer  = labelPrefix + "server" // the server that started it with run/start
)

// codeAttached is the error code for a session that another connection uses.
const codeAttached = -32010

// probeFor is how long the connection that holds a session has to answer a ping
// when another connection requests the session.
const probeFor = time.Second

// session is a namespace of processes that outlives its connection.
type session struct {
	server  *Server
	subject *access.Subject // whose session it is
	id      string

	snapshots shellSnapshots

	mu     sync.Mutex
	conn   *conn // nil while detached
	procs  map[string]*process
	expiry *time.Timer // runs while detached
	losses int         // number of detaches
	ended  bool
	swept  time.Time // when procs was last swept
}

// process is a run under the id that its client chose.
type process struct {
	id      string
	started chan struct{} // closed once run is set or the start failed
	run     spool.RunID   // set before started is closed; empty if it failed
	tty     bool          // likewise
	// isolated is set like tty: a sandbox may be why the process fails.
	isolated bool

	done atomic.Bool // the closed event was sent

	mu        sync.Mutex
	cancelled bool          // terminated during the start
	denial    *bool         // whether the sandbox seems to have stopped it; nil until it is known
	proxy     *processProxy // nil without one, and once the process is closed
}

// closeProxy ends the network proxy of a process, if it has one.
func (p *process) closeProxy() {
	p.mu.Lock()
	proxy := p.proxy
	p.proxy = nil
	p.mu.Unlock()
	if proxy != nil {
		proxy.close()
	}
}

// current returns the connection that has the session, or nil.
func (sess *session) current() *conn {
	sess.mu.Lock()
	defer sess.mu.Unlock()
	return sess.conn
}

// label returns the value of labelSession of the session's runs.
func (sess *session) label() string { return sessionLabel(sess.subject, sess.id) }

// sessionLabel returns the label of a session of a subject. Sessions are found by
// it alone, so that a subject finds only its own. An id has no slash.
func sessionLabel(s *access.Subject, id string) string {
	if s.IsOwner() {
		return id
	}
	return s.Name + "/" + id
}

func newUUID() string {
	var b [16]byte
	rand.Read(b[:]) // never fails
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	return formatUUID(b)
}

// uuidText matches the UUID spellings that clients of the dialect may use.
var uuidText = lazyregexp.New(`^(?:urn:uuid:)?(?:[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|[0-9a-fA-F]{32})$`)

// parseUUID returns a UUID in its canonical form.
func parseUUID(s string) (string, bool) {
	if inner, ok := strings.CutPrefix(s, "{"); ok {
		if s, ok = strings.CutSuffix(inner, "}"); !ok {
			return "", false
		}
	}
	if !uuidText().MatchString(s) {
		return "", false
	}
	digits := strings.ReplaceAll(strings.TrimPrefix(s, "urn:uuid:"), "-", "")
	var b [16]byte
	_, err := hex.Decode(b[:], []byte(digits))
	return formatUUID(b), err == nil
}

func formatUUID(b [16]byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// newSession makes a session attached to the connection.
func (s *Server) newSession(c *conn) (*session, error) {
	sess := &session{server: s, subject: c.subject, id: newUUID(), conn: c, procs: make(map[string]*process)}
	if err := s.add(sess); err != nil {
		return nil, err
	}
	s.hold(sess)
	return sess, nil
}

// leaser is a backend that outlives this server. It ends the runs with a label
// when their server is gone and no other server takes over in time, and it
// remembers the label.
type leaser interface {
	Lease(ctx context.Context, key, value string, ttl time.Duration) error
	Leased(ctx context.Context, key, value string) (bool, error)
	Release(ctx context.Context, key, value string) error
}

// hold takes the lease of a session in the background. If the server dies
// before it has the lease, only requests of the last moment are lost.
func (s *Server) hold(sess *session) {
	l, ok := s.opts.Backend.(leaser)
	if !ok || !s.begin() {
		return
	}
	go func() {
		defer s.wg.Done()
		if err := l.Lease(s.ctx, labelSession, sess.label(), s.opts.Detached); err != nil && s.ctx.Err() == nil {
			s.log.Warn("holding the lease of a session", "session", sess.id, "err", err)
		}
	}()
}

// wasLeased reports whether an earlier server held the session.
func (s *Server) wasLeased(sess *session) bool {
	l, ok := s.opts.Backend.(leaser)
	if !ok {
		return false
	}
	held, err := l.Leased(s.ctx, labelSession, sess.label())
	return err == nil && held
}

func (s *Server) add(sess *session) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return rpc.Errorf(rpc.CodeInternal, "the server is shutting down")
	}
	s.sessions[sess.label()] = sess
	return nil
}

// resume attaches the connection to an existing session.
func (s *Server) resume(id string, c *conn) (*session, error) {
	s.mu.Lock()
	sess, ok := s.sessions[sessionLabel(c.subject, id)]
	s.mu.Unlock()
	if !ok || strings.Contains(id, "/") {
		var err error
		if sess, err = s.restore(id, c); err != nil {
			return nil, err
		}
	}
	return sess, sess.attach(c)
}

// restore finds a session of an earlier server by the labels of its runs.
func (s *Server) restore(id string, c *conn) (*session, error) {
	unknown := rpc.Errorf(rpc.CodeInvalidRequest, "unknown session id %s", id)
	if id == "" || strings.Contains(id, "/") { // runs without the label have an empty one
		return nil, unknown
	}
	sess := &session{server: s, subject: c.subject, id: id, procs: make(map[string]*process)}
	for info, err := range s.opts.Backend.List(s.ctx, spool.Filter{Labels: map[string]string{labelSession: sess.label()}, Since: time.Now().UTC().Add(-s.opts.Closed)}) {
		if err != nil {
			s.log.Warn("looking for the runs of a session", "session", id, "err", err)
			if info.ID == "" {
				// The runs of the session are unknown at the moment. The client
				// retries after codeAttached.
				return nil, rpc.Errorf(codeAttached, "session %s cannot be restored yet: %s", id, err)
			}
			continue // an error of another run: the scan continues
		}
		if s.forgotten(info) {
			continue
		}
		p := &process{id: info.Labels[labelProcess], run: info.ID, tty: info.TTY, isolated: isIsolated(info), started: make(chan struct{})}
		close(p.started)
		if _, newer := sess.procs[p.id]; !newer {
			sess.procs[p.id] = p
		}
	}
	if len(sess.procs) == 0 && !s.wasLeased(sess) {
		return nil, unknown
	}
	s.mu.Lock()
	other, ok := s.sessions[sess.label()]
	closed := s.closed
	if !ok && !closed {
		s.sessions[sess.label()] = sess
	}
	s.mu.Unlock()
	switch {
	case ok: // two clients at once
		return other, nil
	case closed:
		return nil, unknown
	}
	s.hold(sess)
	return sess, nil
}

// leave detaches a session without ending it, for the next server to resume.
func (sess *session) leave() {
	sess.mu.Lock()
	if sess.expiry != nil {
		sess.expiry.Stop()
	}
	sess.ended = true
	procs := slices.Collect(maps.Values(sess.procs))
	sess.mu.Unlock()
	for _, p := range procs {
		<-p.started
		p.closeProxy() // the next server cannot take it over
	}
}

// forgotten reports whether the id of a process is free again.
func (s *Server) forgotten(info spool.Info) bool {
	return info.State == spool.StateClosed && time.Since(info.Ended) > s.opts.Closed
}

// attach gives the session to a connection. A connection that already holds it
// keeps it only if it is alive.
func (sess *session) attach(c *conn) error {
	for {
		sess.mu.Lock()
		if sess.ended {
			sess.mu.Unlock()
			return rpc.Errorf(rpc.CodeInvalidRequest, "unknown session id %s", sess.id)
		}
		holder := sess.conn
		if holder == nil {
			sess.conn = c
			if sess.expiry != nil {
				sess.expiry.Stop()
				sess.expiry = nil
			}
			procs := slices.Collect(maps.Values(sess.procs))
			sess.mu.Unlock()
			for _, p := range procs {
				c.pushResumed(p)
			}
			return nil
		}
		sess.mu.Unlock()

		ctx, cancel := context.WithTimeout(c.ctx, sess.server.waits.probe)
		err := holder.rpc.Ping(ctx)
		cancel()
		if err == nil {
			return rpc.Errorf(codeAttached, "session %s is already attached to another connection", sess.id)
		}
		holder.end(nil)
		sess.detach(holder)
	}
}

// detach takes the session from a connection and starts its expiry. The
// session's processes keep running.
func (sess *session) detach(c *conn) {
	sess.mu.Lock()
	defer sess.mu.Unlock()
	if sess.conn != c || sess.ended {
		return
	}
	sess.conn = nil
	sess.losses++
	loss := sess.losses
	sess.expiry = time.AfterFunc(sess.server.opts.Detached, func() { sess.expire(loss) })
}

// expire ends the session if no connection resumed it since that loss.
func (sess *session) expire(loss int) {
	s := sess.server
	if !s.begin() {
		return // Close ends it
	}
	defer s.wg.Done()
	sess.mu.Lock()
	if sess.conn != nil || sess.losses != loss || sess.ended {
		sess.mu.Unlock()
		return
	}
	sess.ended = true
	sess.mu.Unlock()
	sess.end()
	// Remember the session as ended for as long as its runs could be mistaken
	// for those of a session that a restart interrupted.
	time.AfterFunc(2*s.opts.Closed, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.sessions, sess.label())
	})
}

// end kills the processes of the session.
func (sess *session) end() {
	sess.mu.Lock()
	if sess.expiry != nil {
		sess.expiry.Stop()
	}
	sess.ended = true
	procs := sess.procs
	sess.procs = nil
	sess.mu.Unlock()
	for _, p := range procs {
		<-p.started
		p.closeProxy()
		if p.run == "" || p.done.Load() {
			continue
		}
		err := sess.server.opts.Backend.Control(context.Background(), p.run, spool.Control{Op: spool.ControlKill})
		if err != nil {
			sess.server.log.Warn("killing a process at the end of a session", "session", sess.id, "run", p.run, "err", err)
		}
	}
	if l, ok := sess.server.opts.Backend.(leaser); ok {
		sess.server.killLabelled(map[string]string{labelSession: sess.label()})
		if err := l.Release(context.Background(), labelSession, sess.label()); err != nil {
			sess.server.log.Warn("releasing the lease of a session", "session", sess.id, "err", err)
		}
	}
}

// reserve reserves a process id before the process starts, so that later
// requests for the id find it.
//
// It refuses a connection that lost the session to another: the client would
// never learn of the process, because it already sent its request on the new
// connection.
func (sess *session) reserve(id string, c *conn) (*process, error) {
	p := &process{id: id, started: make(chan struct{})}
	sess.mu.Lock()
	if sess.ended || sess.conn != c {
		sess.mu.Unlock()
		return nil, rpc.Errorf(rpc.CodeInvalidRequest, "session %s has ended, or moved to another connection", sess.id)
	}
	other, taken := sess.procs[id]
	if !taken {
		sess.procs[id] = p
	}
	sess.mu.Unlock()
	if !taken {
		return p, nil
	}
	if !sess.free(other) {
		return nil, rpc.Errorf(rpc.CodeInvalidRequest, "process %s already exists", id)
	}
	sess.mu.Lock()
	defer sess.mu.Unlock()
	if sess.procs[id] != other && sess.procs[id] != nil {
		return nil, rpc.Errorf(rpc.CodeInvalidRequest, "process %s already exists", id)
	}
	sess.procs[id] = p
	return p, nil
}

// free reports whether a process was closed long enough ago for its id to be
// reused.
func (sess *session) free(p *process) bool {
	select {
	case <-p.started:
	default:
		return false
	}
	info, err := sess.server.opts.Backend.Stat(sess.server.ctx, p.run)
	return errors.Is(err, spool.ErrNotFound) || err == nil && sess.server.forgotten(info)
}

// release frees the id of a failed start.
func (sess *session) release(p *process) {
	sess.drop(p)
	close(p.started)
}

// drop forgets a process.
func (sess *session) drop(p *process) {
	sess.mu.Lock()
	defer sess.mu.Unlock()
	if sess.procs[p.id] == p {
		delete(sess.procs, p.id)
	}
}

// lookup returns a process whose start is over. It waits for the start if
// necessary.
func (sess *session) lookup(ctx context.Context, id string) (*process, error) {
	sess.mu.Lock()
	p, ok := sess.procs[id]
	sess.mu.Unlock()
	unknown := rpc.Errorf(rpc.CodeInvalidRequest, "unknown process id %s", id)
	if !ok {
		return nil, unknown
	}
	select {
	case <-p.started:
	case <-ctx.Done():
		return nil, errGone
	}
	if p.run == "" || sess.free(p) {
		return nil, unknown
	}
	return p, nil
}

// sweep occasionally forgets processes that were closed long ago.
func (sess *session) sweep() {
	sess.mu.Lock()
	if time.Since(sess.swept) < sess.server.opts.Closed {
		sess.mu.Unlock()
		return
	}
	sess.swept = time.Now()
	all := make([]*process, 0, len(sess.procs))
	for _, p := range sess.procs {
		all = append(all, p)
	}
	sess.mu.Unlock()
	for _, p := range all {
		if sess.free(p) {
			sess.drop(p)
		}
	}
}
