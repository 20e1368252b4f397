// Package webhook tells another server what people want to know while they look at no page:
// that a run asks something, and that a run has ended.
package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/pause"
)

const (
	queued  = 1000             // messages that wait; the oldest go first
	tries   = 6                // of a message
	tryFor  = 15 * time.Second // time for one try
	longest = 2000             // bytes of a text in a message
	// remembered is how many runs that have ended are known as told.
	remembered = 10_000
)

// SignatureHeader has the time in seconds and the signature of a message: t=TIME,v1=HEX. The
// signature is the HMAC with SHA-256 of the time, a dot and the body.
const SignatureHeader = "Spool-Signature"

// Message is what is told. Either Ask or Done is set.
type Message struct {
	ID   string    `json:"id"`   // the same if a message is sent again
	Text string    `json:"text"` // a line for people
	Time time.Time `json:"time"`
	URL  string    `json:"url,omitempty"` // of the run in the console
	Run  Run       `json:"run"`
	Ask  *Ask      `json:"ask,omitempty"`
	Done *Done     `json:"done,omitempty"`
}

// Run is the run of a message.
type Run struct {
	ID     spool.RunID       `json:"id"`
	Name   string            `json:"name,omitempty"`
	Engine string            `json:"engine"`
	Cwd    string            `json:"cwd,omitempty"`
	Node   string            `json:"node,omitempty"`
	Labels map[string]string `json:"labels,omitempty"`
}

// Ask is a question that waits for an answer.
type Ask struct {
	Seq      spool.Seq `json:"seq"`
	Kind     string    `json:"kind"`
	Prompt   string    `json:"prompt,omitempty"`
	Command  string    `json:"command,omitempty"` // that an agent wants to run
	Deadline time.Time `json:"deadline,omitzero"`
}

// Done is how a run ended.
type Done struct {
	Outcome *spool.Outcome `json:"outcome"`
	TookMs  int64          `json:"took_ms"`
}

// Options are those of a [Sender].
type Options struct {
	URL    string // that takes the messages
	Secret []byte // signs them; empty means that they are not signed
	Page   string // the address of the console, for links
	Logger *slog.Logger
}

// Sender watches runs and sends messages.
type Sender struct {
	opts    Options
	backend interface {
		spool.Backend
		spool.Watcher
	}
	client *http.Client
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu    sync.Mutex
	queue []Message
	wake  chan struct{} // has room for one
}

// ErrUnsupported says that the backend does not tell which runs change.
var ErrUnsupported = errors.New("these runs cannot be watched")

// Start begins to watch the runs of a backend.
func Start(ctx context.Context, b spool.Backend, o Options) (*Sender, error) {
	watched, ok := b.(interface {
		spool.Backend
		spool.Watcher
	})
	if !ok {
		return nil, ErrUnsupported
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &Sender{opts: o, backend: watched, cancel: cancel, wake: make(chan struct{}, 1)}
	s.client = &http.Client{Timeout: tryFor, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	s.wg.Go(func() { s.watch(ctx) })
	s.wg.Go(func() { s.send(ctx) })
	return s, nil
}

// Close ends the sender. What was not sent is not sent.
func (s *Sender) Close() error {
	s.cancel()
	s.wg.Wait()
	s.client.CloseIdleConnections()
	return nil
}

// watch finds out what is new, and begins again if that fails.
func (s *Sender) watch(ctx context.Context) {
	k := known{asks: make(map[spool.RunID]map[spool.Seq]bool), ended: make(map[spool.RunID]time.Time)}
	for since := time.Now(); ctx.Err() == nil; {
		for info, err := range s.backend.Watch(ctx, spool.Filter{Since: since}) {
			if err != nil {
				if ctx.Err() == nil {
					s.opts.Logger.Warn("watch runs for notifications", "err", err)
				}
				continue
			}
			if info.ID != "" {
				s.note(ctx, k, &info)
			}
		}
		_ = pause.For(ctx, time.Second)
	}
}

// known is what was told.
type known struct {
	asks  map[spool.RunID]map[spool.Seq]bool // of live runs
	ended map[spool.RunID]time.Time
}

// note takes the description of a run.
func (s *Sender) note(ctx context.Context, k known, info *spool.Info) {
	if info.State == spool.StateRemoved {
		delete(k.asks, info.ID)
		return
	}
	if info.State == spool.StateClosed {
		delete(k.asks, info.ID)
		if _, told := k.ended[info.ID]; told {
			return
		}
		if len(k.ended) >= remembered { // the same run is told twice at most if it is renamed long after
			maps.DeleteFunc(k.ended, func(_ spool.RunID, at time.Time) bool { return time.Since(at) > time.Minute })
		}
		k.ended[info.ID] = time.Now()
		s.add(s.done(info))
		return
	}
	told := k.asks[info.ID]
	if told == nil {
		told = make(map[spool.Seq]bool)
		k.asks[info.ID] = told
	}
	if info.Asks == nil {
		clear(told)
		return
	}
	for _, seq := range info.Asks.Open {
		if told[seq] {
			continue
		}
		m, err := s.ask(ctx, info, seq)
		if err != nil {
			s.opts.Logger.Warn("read an ask", "run", info.ID, "seq", seq, "err", err)
			continue
		}
		told[seq] = true
		s.add(m)
	}
}

func (s *Sender) message(info *spool.Info, id, text string) Message {
	m := Message{ID: string(info.ID) + "/" + id, Text: cut(text), Time: time.Now().UTC()}
	m.Run = Run{ID: info.ID, Name: info.Name, Engine: info.Engine, Cwd: info.Cwd, Node: info.Node, Labels: info.Labels}
	if s.opts.Page != "" {
		m.URL = s.opts.Page + "/runs/" + string(info.ID)
	}
	return m
}

// ask is the message about an open ask.
func (s *Sender) ask(ctx context.Context, info *spool.Info, seq spool.Seq) (Message, error) {
	page, err := s.backend.Read(ctx, info.ID, spool.Query{After: seq - 1, MaxBytes: 1})
	if err != nil {
		return Message{}, err
	}
	var a spool.Ask
	if len(page.Events) == 0 || page.Events[0].Seq != seq {
		return Message{}, spool.ErrNotFound
	}
	if err := json.Unmarshal(page.Events[0].Data, &a); err != nil {
		return Message{}, err
	}
	var data struct {
		Command string `json:"command"`
	}
	_ = json.Unmarshal(a.Data, &data) // most asks have none
	what := a.Kind
	for _, text := range []string{a.Name, a.Prompt, data.Command} { // the last that is there
		if text != "" {
			what = text
		}
	}
	m := s.message(info, fmt.Sprint("ask-", seq), name(info)+" asks: "+what)
	m.Ask = &Ask{Seq: seq, Kind: a.Kind, Prompt: cut(a.Prompt), Command: cut(data.Command), Deadline: a.Deadline}
	return m, nil
}

// done is the message about a run that has ended.
func (s *Sender) done(info *spool.Info) Message {
	m := s.message(info, "done", fmt.Sprintf("%s ended: %s", name(info), info.Outcome))
	m.Done = &Done{Outcome: info.Outcome, TookMs: info.Ended.Sub(info.Created).Milliseconds()}
	return m
}

// name is what a run is called.
func name(info *spool.Info) string {
	if info.Name != "" {
		return info.Name
	}
	return info.Engine + " " + string(info.ID)
}

// cut bounds a text.
func cut(text string) string {
	if len(text) <= longest {
		return text
	}
	return string(bytes.ToValidUTF8([]byte(text[:longest]), nil)) + "…"
}

// add has a message sent.
func (s *Sender) add(m Message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.queue = append(s.queue, m); len(s.queue) > queued {
		s.opts.Logger.Warn("too many notifications wait: the oldest is dropped", "id", s.queue[0].ID)
		s.queue = s.queue[1:]
	}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// next returns the oldest message that waits.
func (s *Sender) next(ctx context.Context) (m Message, ok bool) {
	for {
		s.mu.Lock()
		if len(s.queue) > 0 {
			m, s.queue = s.queue[0], s.queue[1:]
			s.mu.Unlock()
			return m, true
		}
		s.mu.Unlock()
		select {
		case <-s.wake:
		case <-ctx.Done():
			return m, false
		}
	}
}

// send sends one message after the other.
func (s *Sender) send(ctx context.Context) {
	for {
		m, ok := s.next(ctx)
		if !ok {
			return
		}
		wait := time.Second
		for try := 1; ; try++ {
			again, err := s.post(ctx, &m)
			if err == nil || ctx.Err() != nil {
				break
			}
			if !again || try == tries {
				s.opts.Logger.Warn("notify", "id", m.ID, "err", err)
				break
			}
			_ = pause.For(ctx, wait)
			wait *= 2
		}
	}
}

// post sends a message once; again is whether it may go better later.
func (s *Sender) post(ctx context.Context, m *Message) (again bool, err error) {
	body, err := json.Marshal(m)
	if err != nil {
		return false, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.opts.URL, bytes.NewReader(body))
	if err != nil {
		return false, err
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("User-Agent", "spool")
	if len(s.opts.Secret) > 0 {
		r.Header.Set(SignatureHeader, Sign(s.opts.Secret, time.Now(), body))
	}
	answer, err := s.client.Do(r)
	if err != nil {
		return true, err
	}
	_, _ = io.CopyN(io.Discard, answer.Body, 64<<10) // so that the connection can be used again
	_ = answer.Body.Close()
	if answer.StatusCode >= 300 {
		return answer.StatusCode >= 500 || answer.StatusCode == http.StatusTooManyRequests, fmt.Errorf("the server answered %s", answer.Status)
	}
	return false, nil
}

// Sign returns the value of [SignatureHeader] for a body.
func Sign(secret []byte, at time.Time, body []byte) string {
	t := strconv.FormatInt(at.Unix(), 10)
	mac := hmac.New(sha256.New, secret)
	_, _ = fmt.Fprintf(mac, "%s.%s", t, body) // never fails
	return "t=" + t + ",v1=" + hex.EncodeToString(mac.Sum(nil))
}
