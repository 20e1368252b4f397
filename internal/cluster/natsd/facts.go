package natsd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/nats-io/nuid"

	"github.com/spool-run/spool/internal/cluster"
	"github.com/spool-run/spool/internal/pause"
)

// Limits of one attempt to reach the store.
const (
	attemptTimeout = time.Second
	attemptPause   = 20 * time.Millisecond
	// decideTimeout bounds all attempts of one write: the store knows them again
	// for longer.
	decideTimeout = 90 * time.Second
	// nextTimeout bounds the wait for the next of many facts: a store that restarts
	// may have forgotten who reads them.
	nextTimeout = 5 * time.Second
)

// Both of these mean "wrong last sequence". The first compares with what is written,
// as far as this leader knows. The second only says that another write of the subject
// is under way, perhaps our own, and may never happen: a writer that takes it for a conflict
// believes in an owner that need not exist.
const codeWrongSequence = jetstream.ErrorCode(10071)

// Options configure a connection to a store.
type Options struct {
	// Server is the embedded server of this process; nil means that of URL.
	Server *Server
	// URL are the servers, separated by commas.
	URL   string
	Name  string // of the node
	TLS   *tls.Config
	Creds string // file with the credentials for a NATS server; may be empty
	// Replicas is how many servers hold every fact; a server that is no part of a
	// cluster of servers holds them alone.
	Replicas int
	Log      *slog.Logger
}

// Facts is the store of a cluster.
type Facts struct {
	nc   *nats.Conn
	js   jetstream.JetStream
	log  *slog.Logger
	made chan struct{} // closed when the streams exist
	gone chan struct{} // has room for one; filled when they may exist no more
	stop context.CancelFunc
	done chan struct{}

	replicas int
	streams  atomic.Pointer[layout] // the streams that there are; set before made is closed
	outages  atomic.Int64
}

var _ cluster.Facts = (*Facts)(nil)

// Connect connects to a store, which need not be there yet.
func Connect(o Options) (*Facts, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	f := &Facts{log: o.Log, made: make(chan struct{}), gone: make(chan struct{}, 1), done: make(chan struct{}), replicas: max(o.Replicas, 1)}
	opts := []nats.Option{
		nats.Name("spool " + o.Name), nats.MaxReconnects(-1), nats.ReconnectWait(50 * time.Millisecond), nats.ReconnectJitter(50*time.Millisecond, 50*time.Millisecond),
		nats.RetryOnFailedConnect(true), nats.PingInterval(2 * time.Second), nats.MaxPingsOutstanding(2), nats.ReconnectBufSize(-1),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil {
				f.outages.Add(1)
				f.log.Info("the store of the cluster is away", "err", err)
			}
		}),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { f.log.Info("store of the cluster", "err", err) }),
	}
	url := o.URL
	switch {
	case o.Server != nil:
		opts, url = append(opts, nats.InProcessServer(o.Server.s)), ""
	case o.TLS != nil:
		opts = append(opts, nats.Secure(o.TLS))
	}
	if o.Creds != "" {
		opts = append(opts, nats.UserCredentials(o.Creds))
	}
	var err error
	if f.nc, err = nats.Connect(url, opts...); err != nil {
		return nil, fmt.Errorf("connect to the store of the cluster: %w", err)
	}
	if f.js, err = jetstream.New(f.nc, jetstream.WithDefaultTimeout(attemptTimeout)); err != nil {
		f.nc.Close()
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	f.stop = stop
	go func() {
		defer close(f.done)
		f.makeStreams(ctx)
		if ctx.Err() == nil {
			close(f.made)
		}
		for { // a store may lose everything
			select {
			case <-f.gone:
				f.makeStreams(ctx)
			case <-ctx.Done():
				return
			}
			if pause.For(ctx, attemptTimeout) != nil {
				return
			}
		}
	}()
	return f, nil
}

// Close ends the connection.
func (f *Facts) Close() {
	f.stop()
	<-f.done
	f.nc.Close()
}

// missing has the streams made again if an error says that there are none.
func (f *Facts) missing(err error) {
	if errors.Is(err, jetstream.ErrNoStreamResponse) || errors.Is(err, errNoStream) {
		select {
		case f.gone <- struct{}{}:
		default:
		}
	}
}

// ready waits until the streams exist.
func (f *Facts) ready(ctx context.Context) error {
	select {
	case <-f.made:
		return nil
	default:
	}
	select {
	case <-f.made:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", cluster.ErrUndecided, context.Cause(ctx))
	}
}

// streamOf returns the name of the stream with the facts whose key begins with a prefix,
// once the streams exist.
func (f *Facts) streamOf(prefix string) string { return f.streams.Load().streamOf(prefix) }

// Get implements [cluster.Facts]. It asks the leader of the stream.
func (f *Facts) Get(ctx context.Context, key string) (cluster.Fact, error) {
	if err := f.ready(ctx); err != nil {
		return cluster.Fact{}, err
	}
	for {
		fact, err := f.get(ctx, key)
		if err == nil || errors.Is(err, cluster.ErrNoFact) {
			return fact, err
		}
		if pause.For(ctx, attemptPause) != nil {
			return cluster.Fact{}, fmt.Errorf("%w: %w", cluster.ErrUndecided, err)
		}
	}
}

// get asks once for a fact.
func (f *Facts) get(ctx context.Context, key string) (cluster.Fact, error) {
	return f.ask(ctx, key, `{"last_by_subj":"`+subjects+key+`"}`)
}

// next asks once for the fact of a prefix that comes next after a revision.
func (f *Facts) next(ctx context.Context, prefix string, after uint64) (cluster.Fact, error) {
	return f.ask(ctx, prefix, fmt.Sprintf(`{"seq":%d,"next_by_subj":"%s*"}`, after+1, subjects+prefix))
}

// ask asks the leader of the stream of a prefix once for a fact.
func (f *Facts) ask(ctx context.Context, prefix, request string) (fact cluster.Fact, err error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	defer func() { f.missing(err) }()
	resp, err := f.nc.RequestWithContext(ctx, "$JS.API.STREAM.MSG.GET."+f.streamOf(prefix), []byte(request))
	if err != nil {
		return cluster.Fact{}, err
	}
	return decodeGet(resp.Data)
}

// Put implements [cluster.Facts]. It says the same again, under the same id, until the
// answer is certain. A conflict is certain once a later revision was read: a leader
// that lost its followers may be behind, and refuse for the wrong reason.
func (f *Facts) Put(ctx context.Context, fact cluster.Fact, expect uint64, keep time.Duration) (uint64, error) {
	if err := f.ready(ctx); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, decideTimeout)
	defer cancel()
	opts := []jetstream.PublishOpt{
		jetstream.WithExpectLastSequencePerSubject(expect), jetstream.WithRetryAttempts(0), jetstream.WithMsgID(nuid.Next()),
	}
	if keep > 0 {
		opts = append(opts, jetstream.WithMsgTTL(keep))
	}
	var last error
	for {
		rev, err := f.attempt(ctx, fact, expect, opts)
		if err == nil || errors.Is(err, cluster.ErrConflict) || errors.Is(err, errNever) {
			return rev, err
		}
		if last == nil || ctx.Err() == nil { // else the attempt was cut short
			last = err
		}
		if pause.For(ctx, attemptPause) != nil {
			return 0, fmt.Errorf("%w: %w", cluster.ErrUndecided, last)
		}
	}
}

// errNever is an error that trying again does not change.
var errNever = errors.New("the store of the cluster cannot hold it")

// attempt writes once. An error that is neither a conflict nor for ever decides
// nothing.
func (f *Facts) attempt(ctx context.Context, fact cluster.Fact, expect uint64, opts []jetstream.PublishOpt) (uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	ack, err := f.js.PublishMsg(ctx, &nats.Msg{Subject: subjects + fact.Key, Data: fact.Data}, opts...)
	if err == nil {
		return ack.Sequence, nil
	}
	f.missing(err)
	if errors.Is(err, nats.ErrMaxPayload) || errors.Is(err, nats.ErrBadSubject) {
		return 0, fmt.Errorf("%w: %w", errNever, err)
	}
	var api *jetstream.APIError
	if !errors.As(err, &api) || api.ErrorCode != codeWrongSequence {
		return 0, err
	}
	now, getErr := f.get(ctx, fact.Key)
	switch {
	case getErr == nil && now.Rev < expect || errors.Is(getErr, cluster.ErrNoFact) && expect > 0:
		return 0, fmt.Errorf("%w: %w", cluster.ErrBehind, err)
	case getErr != nil || now.Rev == expect: // not certain
		return 0, err
	case string(now.Data) == string(fact.Data): // ours, of an attempt whose answer was lost
		return now.Rev, nil
	}
	return 0, cluster.ErrConflict
}

// All implements [cluster.Facts].
func (f *Facts) All(ctx context.Context, prefix string) iter.Seq2[cluster.Fact, error] {
	return func(yield func(cluster.Fact, error) bool) {
		if err := f.ready(ctx); err != nil {
			yield(cluster.Fact{}, err)
			return
		}
		left, err := f.all(ctx, prefix, func(fact cluster.Fact) bool { return yield(fact, nil) })
		if !left && err != nil {
			yield(cluster.Fact{}, fmt.Errorf("%w: %w", cluster.ErrUndecided, err))
		}
	}
}

// few is how many facts are asked for one by one. A consumer, which delivers any number,
// costs all servers more than that: they agree on it.
const few = 16

// all yields the facts of a prefix, in the order in which they were written. One that is
// written meanwhile may come twice. It reports whether the reader left.
func (f *Facts) all(ctx context.Context, prefix string, yield func(cluster.Fact) bool) (left bool, err error) {
	last := uint64(0)
	for range few {
		fact, err := f.next(ctx, prefix, last)
		if errors.Is(err, cluster.ErrNoFact) {
			return false, nil
		}
		if err != nil {
			return false, err
		}
		if !yield(fact) {
			return true, nil
		}
		last = fact.Rev
	}
	return f.deliver(ctx, prefix, last, yield)
}

// deliver yields what a consumer of the stream delivers after a revision.
func (f *Facts) deliver(ctx context.Context, prefix string, after uint64, yield func(cluster.Fact) bool) (left bool, err error) {
	c, err := f.js.OrderedConsumer(ctx, f.streamOf(prefix), jetstream.OrderedConsumerConfig{
		FilterSubjects: []string{subjects + prefix + "*"}, DeliverPolicy: jetstream.DeliverByStartSequencePolicy, OptStartSeq: after + 1,
		InactiveThreshold: 5 * time.Second, MaxResetAttempts: 3,
	})
	if err != nil {
		return false, err
	}
	if info := c.CachedInfo(); info != nil {
		// Many nodes read now and then, and a stream has so many consumers.
		defer func() { _ = f.nc.Publish("$JS.API.CONSUMER.DELETE."+f.streamOf(prefix)+"."+info.Name, nil) }()
		if info.NumPending == 0 {
			return false, nil
		}
	}
	messages, err := c.Messages(jetstream.PullMaxMessages(500))
	if err != nil {
		return false, err
	}
	defer messages.Stop()
	defer context.AfterFunc(ctx, messages.Stop)()
	for {
		m, err := messages.Next(jetstream.NextMaxWait(nextTimeout))
		if err != nil {
			return false, err
		}
		meta, err := m.Metadata()
		if err != nil {
			return false, err
		}
		if !yield(cluster.Fact{Key: strings.TrimPrefix(m.Subject(), subjects), Rev: meta.Sequence.Stream, Data: m.Data()}) {
			return true, nil
		}
		if meta.NumPending == 0 {
			return false, nil
		}
	}
}

// Watch implements [cluster.Facts]. The leader of the stream tells what was written on
// a subject of its own, so that nobody needs a consumer to watch.
func (f *Facts) Watch(prefix string, tell func(cluster.Fact)) (stop func(), err error) {
	sub, err := f.nc.Subscribe(saw+prefix+"*", func(m *nats.Msg) {
		rev, err := strconv.ParseUint(m.Header.Get("Nats-Sequence"), 10, 64)
		if err == nil {
			tell(cluster.Fact{Key: prefix + strings.TrimPrefix(m.Subject, saw+prefix), Rev: rev, Data: m.Data})
		}
	})
	if err != nil {
		return nil, fmt.Errorf("watch the store of the cluster: %w", err)
	}
	return func() { _ = sub.Unsubscribe() }, nil // the connection may be closed
}

// Last returns the highest revision of the part of the store that has the facts of a
// prefix. It asks the leader of the stream, which says less when it has just become the
// leader, and for some seconds when it was stopped and another one has.
func (f *Facts) Last(ctx context.Context, prefix string) (rev uint64, err error) {
	if err := f.ready(ctx); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	s, err := f.js.Stream(ctx, f.streamOf(prefix))
	if err != nil {
		f.missing(err)
		return 0, fmt.Errorf("%w: %w", cluster.ErrUndecided, err)
	}
	return s.CachedInfo().State.LastSeq, nil
}

// Links counts the connections to the store: it grows with every one that takes the
// place of another.
func (f *Facts) Links() uint64 { return 1 + f.nc.Stats().Reconnects }

// Connected reports whether the store is reached, and how often it was lost.
func (f *Facts) Connected() (connected bool, outages int64) {
	return f.nc.IsConnected(), f.outages.Load()
}

// Status says how the store is.
func (f *Facts) Status() cluster.StoreStatus {
	s := cluster.StoreStatus{Connected: f.nc.IsConnected(), URL: f.nc.ConnectedUrlRedacted(), Outages: f.outages.Load()}
	select {
	case <-f.made:
	default:
		return s
	}
	ctx, cancel := context.WithTimeout(context.Background(), attemptTimeout)
	defer cancel()
	for _, part := range *f.streams.Load() {
		one := cluster.StreamStatus{Name: part.name}
		st, err := f.js.Stream(ctx, part.name)
		if err != nil {
			one.Error = err.Error()
			s.Streams = append(s.Streams, one)
			continue
		}
		info := st.CachedInfo()
		one.Facts, one.Bytes = int64(info.State.Msgs), int64(info.State.Bytes)
		if c := info.Cluster; c != nil {
			one.Leader = c.Leader
			for _, r := range c.Replicas {
				if r.Current && !r.Offline {
					one.Current++
				}
			}
			one.Current++ // the leader
		} else {
			one.Current = 1
		}
		s.Streams = append(s.Streams, one)
	}
	return s
}
