package access

import (
	"container/list"
	"errors"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"
)

// Limits of failed authentication. A request with a valid token is never slowed.
const (
	// FreeFailures is how many failures of one source are answered at once in a
	// FailureWindow. The answers to further ones wait longer and longer.
	FreeFailures  = 10
	FailureWindow = time.Minute

	firstDelay = 100 * time.Millisecond
	maxDelay   = 5 * time.Second
	// MaxWaiting and MaxWaitingTotal are how many answers wait, for one source
	// and in total. Beyond that a failure is answered at once with the status
	// 429.
	MaxWaiting      = 16
	MaxWaitingTotal = 256
	// maxSources is how many sources are remembered. The one that failed longest
	// ago is forgotten first.
	maxSources = 4096
)

// Throttle is an [Authenticator] that slows failed attempts at another one, or
// refuses them.
type Throttle struct {
	next Authenticator
	// most and mostTotal are how many failures of one source and of all sources
	// in a window get an answer of their own; zero means that answers wait instead.
	most, mostTotal int
	now             func() time.Time
	wait            func(r *http.Request, d time.Duration) // until d has passed or the request ends

	mu      sync.Mutex
	sources map[string]*list.Element // of *source
	recent  *list.List               // the source that failed last is in front
	waiting int
	since   time.Time // beginning of the window of all sources
	total   int       // failures in it
}

// source is where failed attempts came from.
type source struct {
	name     string
	since    time.Time // beginning of the window
	failures int       // in the window
	waiting  int
}

// NewThrottle returns an authenticator that asks next and slows its failures.
func NewThrottle(next Authenticator) *Throttle {
	return &Throttle{next: next, now: time.Now, wait: waitFor, sources: make(map[string]*list.Element), recent: list.New()}
}

// NewRefuser returns an authenticator that asks next. If it fails more often in a
// [FailureWindow] than most for one source, or than total for all, it answers with
// the status 429 and with a time to wait that grows. No answer waits.
func NewRefuser(next Authenticator, most, total int) *Throttle {
	t := NewThrottle(next)
	t.most, t.mostTotal = most, total
	return t
}

func waitFor(r *http.Request, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-r.Context().Done():
	}
}

// Valid implements [Authenticator].
func (t *Throttle) Valid(s *Subject) error { return t.next.Valid(s) }

// Authenticate implements [Authenticator].
func (t *Throttle) Authenticate(r *http.Request) (*Subject, error) {
	s, err := t.next.Authenticate(r)
	if err == nil {
		return s, nil
	}
	return nil, t.Fail(r, err)
}

// Fail counts a failed attempt, and returns the error that answers it: the one that
// it is given, after a while, or one that says to wait.
func (t *Throttle) Fail(r *http.Request, err error) error {
	var refusal *Refusal
	if errors.As(err, &refusal) && refusal.Err != nil { // not the client's fault
		return err
	}
	if t.most > 0 {
		return t.refuse(Source(r), err)
	}
	from, delay, ok := t.fail(Source(r))
	if !ok {
		return &Refusal{Status: http.StatusTooManyRequests, Text: tooManyText, RetryAfter: maxDelay, repeated: true}
	}
	if delay > 0 {
		t.wait(r, delay)
		t.mu.Lock()
		from.waiting--
		t.waiting--
		t.mu.Unlock()
		if refusal != nil {
			again := *refusal
			again.repeated = true
			return &again
		}
	}
	return err
}

const tooManyText = "too many failed attempts"

// refuse counts a failure, and returns the error that answers it.
func (t *Throttle) refuse(name string, err error) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	if now.Sub(t.since) > FailureWindow {
		t.since, t.total = now, 0
	}
	t.total++
	from := t.count(name, now)
	beyond := max(from.failures-t.most, t.total-t.mostTotal)
	if beyond <= 0 {
		return err
	}
	wait := FailureWindow
	if shift := beyond - 1; shift < 6 {
		wait = min(time.Second<<shift, FailureWindow)
	}
	return &Refusal{Status: http.StatusTooManyRequests, Text: tooManyText, RetryAfter: wait, repeated: true}
}

// count counts a failure of a source. Callers hold t.mu.
func (t *Throttle) count(name string, now time.Time) *source {
	var from *source
	if e, known := t.sources[name]; known {
		t.recent.MoveToFront(e)
		from = e.Value.(*source)
		if now.Sub(from.since) > FailureWindow {
			from.since, from.failures = now, 0
		}
	} else {
		from = &source{name: name, since: now}
		t.sources[name] = t.recent.PushFront(from)
		if len(t.sources) > maxSources {
			oldest := t.recent.Back()
			delete(t.sources, t.recent.Remove(oldest).(*source).name)
		}
	}
	from.failures++
	return from
}

// fail counts a failure and returns how long its answer waits. It returns false
// if too many answers wait.
func (t *Throttle) fail(name string) (from *source, delay time.Duration, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	from = t.count(name, t.now())
	beyond := from.failures - FreeFailures
	if beyond <= 0 {
		return from, 0, true
	}
	if from.waiting >= MaxWaiting || t.waiting >= MaxWaitingTotal {
		return from, 0, false
	}
	from.waiting++
	t.waiting++
	delay = maxDelay
	if shift := beyond - 1; shift < 16 {
		delay = min(firstDelay<<shift, maxDelay)
	}
	return from, delay, true
}

// Source returns where a request comes from: an IPv4 address, a network of 64 bits
// of an IPv6 address, or a unix socket.
func Source(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return "unix"
	}
	addr, err := netip.ParseAddr(host)
	if err != nil {
		return host
	}
	addr = addr.Unmap().WithZone("")
	if addr.Is6() {
		if prefix, err := addr.Prefix(64); err == nil {
			return prefix.String()
		}
	}
	return addr.String()
}
