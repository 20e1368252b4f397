package host

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/eventlog"
)

// Limits of a run's input queue.
const (
	// maxInputBytes is the limit of queued bytes; a larger single input is
	// accepted when the queue is empty.
	maxInputBytes = 1 << 20
	// inputOverhead is what an input counts beyond its own bytes, so that
	// the limit holds for many small inputs too.
	inputOverhead = 512
	// rememberedInputs is the number of remembered input ids, to detect
	// repeated sends.
	rememberedInputs = 4096
)

// inputQueue is the ordered input of a run. An input is acknowledged when it is
// queued. A goroutine delivers inputs while the queue is not empty; a logged input
// that finds it empty is delivered by its sender, since a session never waits with
// one.
type inputQueue struct {
	ctx    context.Context // ends delivery
	cancel context.CancelFunc
	log    func(spool.Event) (spool.Seq, error) // appends input events
	// putBlob keeps large values beside the log. It may be nil.
	putBlob func(mime string, content io.Reader) (spool.Blob, error)
	asks    asks
	sum     atomic.Int64 // of the bytes of inputs that were accepted

	mu         sync.Mutex
	session    engine.Session
	queue      []spool.Input
	lost       []spool.Input // accepted to begin a turn, but never delivered
	taken      int           // inputs that left the queue
	bytes      int
	delivering bool
	ending     bool                 // the end of the input is queued: no input may follow it
	closed     bool                 // no more input will be delivered
	room       chan struct{}        // closed when the queue shrinks or ends; nil without waiters
	seen       map[string]spool.Seq // seqs of their input events, zero without one
	order      []string             // keys of seen, oldest first
	wg         sync.WaitGroup
}

func newInputQueue(ctx context.Context, log func(spool.Event) (spool.Seq, error)) *inputQueue {
	q := &inputQueue{log: log, seen: make(map[string]spool.Seq)}
	q.ctx, q.cancel = context.WithCancel(ctx)
	return q
}

func (q *inputQueue) begin(s engine.Session) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.session = s
}

// put queues an input. It waits only while the queue is full.
func (q *inputQueue) put(ctx context.Context, in spool.Input) (spool.Receipt, error) {
	for {
		q.mu.Lock()
		if seq, ok := q.seen[in.ID]; ok && in.ID != "" {
			q.mu.Unlock()
			return spool.Receipt{Seq: seq, Repeated: true}, nil
		}
		if q.closed || q.ending {
			q.mu.Unlock()
			return spool.Receipt{}, spool.ErrInputClosed
		}
		if err := q.session.Takes(in); err != nil {
			q.mu.Unlock()
			return spool.Receipt{}, err
		}
		if size := inputSize(&in); q.bytes == 0 || q.bytes+size <= maxInputBytes {
			err := q.record(&in)
			if err == nil {
				q.add(in)
			}
			q.mu.Unlock()
			return spool.Receipt{Seq: in.Seq}, err
		}
		if q.room == nil {
			q.room = make(chan struct{})
		}
		room := q.room
		q.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return spool.Receipt{}, context.Cause(ctx)
		}
	}
}

// inputSize is the size of an input in the queue.
func inputSize(in *spool.Input) int { return inputOverhead + len(in.Bytes) + len(in.Data) }

// record appends the input event of an input that has one, in the order of the
// queue, and accepts only the first answer to an ask. The caller holds q.mu.
func (q *inputQueue) record(in *spool.Input) error {
	if !in.Logged() {
		return nil
	}
	var answer spool.Answer
	if in.Kind == spool.InputAnswer {
		if err := json.Unmarshal(in.Data, &answer); err != nil {
			return fmt.Errorf("%w: answer: %w", spool.ErrInvalid, err)
		}
	}
	said := spool.Said{ID: in.ID, Kind: in.Kind, Data: in.Data}
	if in.Secret || in.Kind == spool.InputAnswer && q.asks.secret(answer.Ask) {
		said.Data = nil
	}
	if said.Data != nil && in.Kind == spool.InputPrompt {
		data, err := q.withoutImages(said.Data)
		if err != nil {
			return err
		}
		said.Data = data
	}
	data, err := json.Marshal(said)
	if err != nil {
		return fmt.Errorf("%w: input: %w", spool.ErrInvalid, err)
	}
	if len(data) > spool.MaxEventBytes {
		return fmt.Errorf("%w: an input of %d bytes exceeds %d", spool.ErrInvalid, len(data), spool.MaxEventBytes)
	}
	if in.Kind == spool.InputAnswer {
		if err := q.asks.answer(&answer); err != nil {
			return err
		}
	}
	in.Seq, err = q.log(spool.Event{Kind: spool.KindInput, Data: data})
	return err
}

// asks are the open asks of a run, derived from the events that open and close
// them.
type asks struct {
	// changed, if it is not nil, is called after each change; it does not keep
	// the map.
	changed func(open map[spool.Seq]openAsk)

	mu       sync.Mutex
	open     map[spool.Seq]openAsk
	answered []answeredAsk // the last ones
}

// answeredAsk is who answered an ask, and when.
type answeredAsk struct {
	ask spool.Seq
	by  string
	at  time.Time
}

// rememberedAnswers is how many answers are remembered, for those who answer too
// late.
const rememberedAnswers = 64

// answer marks an ask as answered. If it is not open, the error says who was faster. An
// answer that lacks what must be typed again leaves it open.
func (a *asks) answer(said *spool.Answer) error {
	ask, by := said.Ask, said.By
	a.mu.Lock()
	dangerous := a.open[ask].dangerous
	a.mu.Unlock()
	if dangerous != nil {
		if err := dangerous.CheckRetype(said); err != nil {
			return fmt.Errorf("answer to %d: %w", ask, err)
		}
	}
	if a.close(ask) {
		a.mu.Lock()
		defer a.mu.Unlock()
		if len(a.answered) == rememberedAnswers {
			a.answered = slices.Delete(a.answered, 0, 1)
		}
		a.answered = append(a.answered, answeredAsk{ask, by, time.Now()})
		return nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, first := range a.answered {
		if first.ask == ask {
			return fmt.Errorf("answer to %d: %w: %s answered at %s", ask, spool.ErrNotAsked, cmp.Or(first.by, "somebody"), first.at.UTC().Format(time.RFC3339))
		}
	}
	return fmt.Errorf("answer to %d: %w", ask, spool.ErrNotAsked)
}

// openAsk is an ask that waits for an answer.
type openAsk struct {
	turn   spool.Seq
	secret bool // the answer stays out of the log
	// dangerous is an ask whose text must be typed again to allow it; nil for any other.
	dangerous *spool.Ask
}

// record appends an event that may open or close an ask. A
// notice that closes an ask which is answered already is refused with
// [spool.ErrNotAsked]: the log never says that an ask ended in two ways.
func (a *asks) record(e spool.Event, log *eventlog.Log) (spool.Seq, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if ask, ok := closedAsk(&e); ok {
		if _, open := a.open[ask]; !open {
			return 0, fmt.Errorf("close ask %d: %w", ask, spool.ErrNotAsked)
		}
	}
	var err error
	if e.Seq, err = log.Append(e); err != nil {
		return e.Seq, err
	}
	if e.OpensAsk() {
		if a.open == nil {
			a.open = make(map[spool.Seq]openAsk)
		}
		a.open[e.Seq] = newOpenAsk(&e)
	}
	changed := e.OpensAsk()
	for ask, o := range a.open {
		if e.ClosesAsk(ask, o.turn) {
			delete(a.open, ask)
			changed = true
		}
	}
	if changed {
		a.tell()
	}
	return e.Seq, nil
}

// tell says that the open asks have changed. The caller holds a.mu.
func (a *asks) tell() {
	if a.changed != nil {
		a.changed(a.open)
	}
}

// closedAsk returns the ask that a notice closes. It reports false for any other
// event.
func closedAsk(e *spool.Event) (spool.Seq, bool) {
	if e.Kind != spool.KindNotice || !bytes.Contains(e.Data, []byte(spool.NoticeAskClosed)) {
		return 0, false
	}
	var n spool.Notice
	if err := json.Unmarshal(e.Data, &n); err != nil || n.Code != spool.NoticeAskClosed {
		return 0, false
	}
	return n.Ask, true
}

// newOpenAsk returns what the answer to an ask has to be. That to an ask which cannot be
// read stays out of the log.
func newOpenAsk(e *spool.Event) openAsk {
	var ask spool.Ask
	o := openAsk{turn: e.Turn, secret: json.Unmarshal(e.Data, &ask) != nil || ask.Secret}
	if ask.Retype {
		o.dangerous = &ask
	}
	return o
}

// secret reports whether the answer to an open ask stays out of the log.
func (a *asks) secret(ask spool.Seq) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.open[ask].secret
}

// close marks an ask as answered. It returns false if the ask was not open.
func (a *asks) close(ask spool.Seq) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, ok := a.open[ask]
	delete(a.open, ask)
	if ok {
		a.tell()
	}
	return ok
}

// add queues an input that fits, and delivers it if it is the first and a logged
// one. The caller holds q.mu, which is released meanwhile.
func (q *inputQueue) add(in spool.Input) {
	if in.ID != "" {
		q.seen[in.ID] = in.Seq
		q.order = append(q.order, in.ID)
		if len(q.order) > rememberedInputs {
			delete(q.seen, q.order[0])
			q.order = q.order[1:]
		}
	}
	q.ending = in.Kind == spool.InputEOF && !takesMore(q.session)
	q.sum.Add(int64(len(in.Bytes) + len(in.Data)))
	q.queue = append(q.queue, in)
	q.bytes += inputSize(&in)
	if q.delivering {
		return
	}
	q.delivering = true
	if in.Logged() {
		q.wg.Add(1)
		defer q.wg.Done()
		q.deliverFirst()
		if len(q.queue) == 0 || q.closed {
			q.delivering = false
			return
		}
	}
	q.wg.Go(q.deliver)
}

// delivered returns when the session has the inputs that begin turns, as far as
// they were accepted by now: an interrupt that names no turn is meant for one of
// them. It does not wait behind standard input, which a run may leave unread.
func (q *inputQueue) delivered(ctx context.Context) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for target := q.taken + len(q.queue); q.taken < target && !q.closed && q.queue[0].Logged(); {
		if q.room == nil {
			q.room = make(chan struct{})
		}
		room := q.room
		q.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
		}
		q.mu.Lock()
		if ctx.Err() != nil {
			return
		}
	}
}

// deliver delivers inputs until there are none.
func (q *inputQueue) deliver() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for len(q.queue) > 0 && !q.closed {
		q.deliverFirst()
	}
	q.delivering = false
}

// deliverFirst delivers the first input of the queue. The caller holds q.mu, which
// is released meanwhile, and has set q.delivering.
func (q *inputQueue) deliverFirst() {
	in, session := q.queue[0], q.session
	q.mu.Unlock()
	err := session.Send(q.ctx, in)
	q.mu.Lock()
	q.queue[0] = spool.Input{}
	q.queue = q.queue[1:]
	q.taken++
	q.bytes -= inputSize(&in)
	if err != nil {
		q.lose(in)
	}
	if err != nil || q.ending && len(q.queue) == 0 {
		q.closed = true
		q.loseQueue()
	}
	q.wake()
}

// lose keeps an input that will not be delivered, if it was to begin a turn.
// The caller holds q.mu.
func (q *inputQueue) lose(in spool.Input) {
	if in.Kind == spool.InputCell || in.Kind == spool.InputPrompt {
		q.lost = append(q.lost, in)
	}
}

// loseQueue empties the queue. The caller holds q.mu.
func (q *inputQueue) loseQueue() {
	for _, in := range q.queue {
		q.lose(in)
	}
	q.queue, q.bytes = nil, 0
}

// takesMore reports whether a run accepts input after the end of its standard
// input: it belonged to one turn only, or the run may still ask.
func takesMore(s engine.Session) bool {
	return s.Takes(spool.Input{Kind: spool.InputCell}) == nil || s.Takes(spool.Input{Kind: spool.InputAnswer}) == nil
}

// wake wakes the waiters. The caller holds q.mu.
func (q *inputQueue) wake() {
	if q.room != nil {
		close(q.room)
		q.room = nil
	}
}

// end refuses further input and returns once no delivery is in progress. It
// returns the done events of the turns whose inputs were accepted but never
// delivered: every turn has an end in the log.
func (q *inputQueue) end() []spool.Event {
	q.mu.Lock()
	q.closed = true
	q.wake()
	q.mu.Unlock()
	q.cancel()
	q.wg.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.session = nil // not used any more
	q.loseQueue()
	var ends []spool.Event
	for _, in := range q.lost {
		data, err := json.Marshal(spool.Done{
			Outcome: spool.TurnKilled, ID: in.ID, ErrorClass: engine.ClassNotRun, Error: "the turn was not run: the run ended before it got the input",
		})
		if err != nil { // plain fields always encode
			panic(err)
		}
		ends = append(ends, spool.Event{Kind: spool.KindDone, Turn: in.Seq, Data: data})
	}
	q.lost = nil
	return ends
}
