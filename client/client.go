package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	neturl "net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/pause"
	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// Defaults of [Options].
const (
	DefaultReconnect = 25 * time.Second
	DefaultDial      = 10 * time.Second
	retryEvery       = 100 * time.Millisecond
	maxRefusal       = 1024 // bytes of the text of a refusal
	rpcPath          = "/v1/rpc"
)

// Options configure a client.
type Options struct {
	// Token is sent as a bearer token.
	Token string
	// TLS configures wss:// connections; nil means the certificate authorities
	// of the system.
	TLS *tls.Config
	// TLSPin is the fingerprint of the server's certificate, "sha256:" and 64
	// hexadecimal digits. The server must have this certificate, which need
	// not be signed by an authority, unless TLS names authorities.
	TLSPin string
	// Connect, if it is set, makes the connections, below TLS if there is any, in place of
	// TCP: through a tunnel, for example.
	Connect func(ctx context.Context, network, addr string) (net.Conn, error)
	// InsecurePlaintext sends the token over ws:// to other machines, too.
	InsecurePlaintext bool
	// Reconnect is how long to try to come back after a connection was
	// lost; zero means DefaultReconnect, less than zero not at all. The
	// default is that of codex's client: a server keeps a session without a
	// connection for 30 seconds.
	Reconnect time.Duration
	// OnReconnect, if it is set, is called with true when the client begins to
	// reconnect and with false when it is connected or has given up. It must
	// not call the client.
	OnReconnect func(trying bool)
	// Dial bounds one attempt; zero means DefaultDial.
	Dial time.Duration
	// Window is how many bytes of events may wait for a slow reader.
	Window int64
}

// DisconnectedError says that the server was lost and did not come back.
type DisconnectedError struct{ Err error }

func (e *DisconnectedError) Error() string {
	return fmt.Sprintf("exec-server transport disconnected: %v", e.Err)
}

// Unwrap returns the cause.
func (e *DisconnectedError) Unwrap() error { return e.Err }

// Client is a backend across the wire. It is safe for concurrent use.
type Client struct {
	url  string
	bare bool // there is no handshake beyond that of the WebSocket
	opts Options
	http *http.Client

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	wg     sync.WaitGroup

	mu      sync.Mutex
	conn    *connection   // nil while there is no connection
	dialing chan struct{} // closed when the present attempts are over; nil if there are none
	err     error         // why the last attempts failed; nil after a success
	closed  bool
}

var _ spool.Backend = (*Client)(nil)

// Dial connects to a server: "spool exec-server" at a ws://, wss:// or unix:// URL, or
// "spool serve" at an http:// or https:// URL.
func Dial(ctx context.Context, url string, o Options) (*Client, error) {
	if o.Reconnect == 0 {
		o.Reconnect = DefaultReconnect
	}
	if o.Dial == 0 {
		o.Dial = DefaultDial
	}
	if o.Window == 0 {
		o.Window = runproto.DefaultWindow
	}
	c := &Client{url: url, opts: o}
	var socket string
	if path, ok := strings.CutPrefix(url, "unix://"); ok {
		c.url, socket = "ws://localhost/", path
	}
	if rest, ok := strings.CutPrefix(url, "http"); ok { // http:// or https://
		c.url, c.bare = "ws"+strings.TrimSuffix(rest, "/")+rpcPath, true
	}
	var err error
	if c.http, err = o.httpClient(socket); err != nil {
		return nil, fmt.Errorf("connect to %s: %w", url, err)
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	l, err := c.dial(ctx)
	if err != nil {
		c.cancel()
		c.http.CloseIdleConnections()
		return nil, fmt.Errorf("connect to %s: %w", url, err)
	}
	c.adopt(l)
	return c, nil
}

// Close drops the connection. Runs go on; readers end with an error.
func (c *Client) Close() error {
	c.mu.Lock()
	c.closed = true
	l := c.conn
	c.mu.Unlock()
	c.cancel()
	if l != nil {
		_ = l.rpc.Close()
	}
	c.wg.Wait()
	c.http.CloseIdleConnections()
	return nil
}

// dial makes one connection and shakes hands.
func (c *Client) dial(ctx context.Context) (*connection, error) {
	ctx, cancel := context.WithTimeout(ctx, c.opts.Dial)
	defer cancel()
	header := http.Header{}
	if c.opts.Token != "" {
		header.Set("Authorization", "Bearer "+c.opts.Token)
	}
	ws, resp, err := websocket.Dial(ctx, c.url, &websocket.DialOptions{
		HTTPClient: c.http, HTTPHeader: header,
		Subprotocols: []string{runproto.Subprotocol}, CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		if resp != nil && resp.StatusCode != http.StatusSwitchingProtocols {
			return nil, refusal(resp, err)
		}
		return nil, dialCause(err)
	}
	l := &connection{rpc: rpc.NewConn(rpc.WebSocket(ws, c.url)), streams: make(map[uint32]*stream)}
	if ws.Subprotocol() != runproto.Subprotocol {
		_ = l.rpc.Close()
		return nil, &refusedError{fmt.Errorf("%w: this is not a Spool server (it does not speak %s)", spool.ErrUnsupported, runproto.Subprotocol)}
	}
	c.wg.Go(func() {
		err := l.rpc.Serve(c.ctx, l)
		l.end(err)
	})
	if c.bare {
		return l, nil
	}
	if err := l.rpc.Call(ctx, "initialize", map[string]string{"clientName": "spool"}, nil); err != nil {
		_ = l.rpc.Close()
		return nil, err
	}
	if err := l.rpc.Notify("initialized", struct{}{}); err != nil {
		return nil, err
	}
	return l, nil
}

// dialCause returns why a connection failed, without the layers it went through:
// the caller names the address.
func dialCause(err error) error {
	var plain tls.RecordHeaderError
	if errors.Is(err, http.ErrSchemeMismatch) || errors.As(err, &plain) && string(plain.RecordHeader[:]) == "HTTP/" {
		return ErrNoTLS
	}
	if layer := (*neturl.Error)(nil); errors.As(err, &layer) {
		err = layer.Err
	}
	if layer := (*net.OpError)(nil); errors.As(err, &layer) && layer.Op == "dial" {
		err = layer.Err
	}
	if layer := (*os.SyscallError)(nil); errors.As(err, &layer) {
		err = layer.Err
	}
	return err
}

// refusal returns the error of an answer that refuses the connection.
func refusal(resp *http.Response, err error) error {
	err = fmt.Errorf("the server answered %s: %w", resp.Status, answerError(resp, err))
	if resp.StatusCode == http.StatusUnauthorized {
		err = &unauthorizedError{err}
	}
	return &refusedError{err}
}

// unauthorizedError makes an error one that is [ErrUnauthorized].
type unauthorizedError struct{ error }

func (e *unauthorizedError) Unwrap() error { return e.error }

func (e *unauthorizedError) Is(target error) bool { return target == ErrUnauthorized }

// answerError returns the text of an answer that refuses the connection, or err
// if it has none.
func answerError(resp *http.Response, err error) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, maxRefusal)) // what there is of it
	var problem struct{ Title, Detail string }
	if resp.Header.Get("Content-Type") == "application/problem+json" && json.Unmarshal(b, &problem) == nil && problem.Title != "" {
		return errors.New(strconv.QuoteToGraphic(cmp.Or(problem.Detail, problem.Title)))
	}
	if text := strings.TrimSpace(string(b)); text != "" && strings.HasPrefix(resp.Header.Get("Content-Type"), "text/plain") {
		return errors.New(strconv.QuoteToGraphic(text))
	}
	return err
}

// refusedError is an answer that trying again will not change.
type refusedError struct{ error }

func (e *refusedError) Unwrap() error { return e.error }

func (c *Client) adopt(l *connection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.conn, c.err = l, nil
}

// connected returns a live connection, dialling if there is none. Callers that
// arrive during an attempt wait for its end.
func (c *Client) connected(ctx context.Context) (*connection, error) {
	for {
		c.mu.Lock()
		if c.closed {
			c.mu.Unlock()
			return nil, spool.ErrClosed
		}
		if c.conn != nil && c.conn.alive() {
			l := c.conn
			c.mu.Unlock()
			return l, nil
		}
		if c.dialing == nil {
			c.dialing = make(chan struct{})
			cause := c.err
			if c.conn != nil {
				cause = c.conn.rpc.Err()
			}
			again := c.conn == nil // gave up before: one attempt is enough
			c.conn = nil
			c.wg.Go(func() { c.redial(cause, again) })
		}
		dialing := c.dialing
		c.mu.Unlock()
		select {
		case <-dialing:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		c.mu.Lock()
		err := c.err
		c.mu.Unlock()
		if err != nil {
			return nil, &DisconnectedError{err}
		}
	}
}

// redial tries to come back until it works, is refused, or takes too long.
func (c *Client) redial(cause error, once bool) {
	deadline := time.Now().Add(c.opts.Reconnect)
	if notify := c.opts.OnReconnect; notify != nil && !once {
		notify(true)
	}
	var l *connection
	var err error
	for {
		if l, err = c.dial(c.ctx); err == nil {
			break
		}
		if cause != nil {
			err = fmt.Errorf("%w; reconnecting: %w", cause, err)
		}
		var refused *refusedError
		if once || errors.As(err, &refused) || !time.Now().Add(retryEvery).Before(deadline) {
			break
		}
		if pause.For(c.ctx, retryEvery) != nil {
			break
		}
	}
	if notify := c.opts.OnReconnect; notify != nil && !once {
		notify(false) // before the callers that wait continue
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.conn, c.err = l, nil
	} else {
		c.err = err
	}
	close(c.dialing)
	c.dialing = nil
}

// call makes a request, again on a new connection if the old one is lost
// before the answer: every request we send may be repeated.
func (c *Client) call(ctx context.Context, method string, params, result any) error {
	for {
		l, err := c.connected(ctx)
		if err != nil {
			return err
		}
		err = l.rpc.Call(ctx, method, params, result)
		if errors.Is(err, rpc.ErrConnClosed) && ctx.Err() == nil {
			continue
		}
		return runproto.DecodeError(err)
	}
}

func newID() string {
	var b [12]byte
	rand.Read(b[:]) // never fails
	return hex.EncodeToString(b[:])
}

// Start implements [spool.Backend].
func (c *Client) Start(ctx context.Context, spec spool.Spec) (spool.Info, error) {
	if spec.ID == "" {
		spec.ID = spool.RunID(newID())
	}
	for {
		l, err := c.connected(ctx)
		if err != nil {
			return spool.Info{}, err
		}
		info, err := l.start(ctx, spec, c.opts.Window)
		if errors.Is(err, rpc.ErrConnClosed) && ctx.Err() == nil {
			continue // a start may be repeated: it has an id
		}
		return info, runproto.DecodeError(err)
	}
}

// Execute implements [spool.Executor].
func (c *Client) Execute(ctx context.Context, spec spool.Spec) (spool.Info, error) {
	if spec.ID == "" {
		spec.ID = spool.RunID(newID())
	}
	var info spool.Info
	err := c.callNew(ctx, "run/execute", spec, &info)
	return info, err
}

// Stat implements [spool.Backend].
func (c *Client) Stat(ctx context.Context, id spool.RunID) (spool.Info, error) {
	var info spool.Info
	err := c.call(ctx, "run/stat", runproto.RunParams{Run: id}, &info)
	return info, err
}

// List implements [spool.Backend].
func (c *Client) List(ctx context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		for left := f.Limit; ; f.Limit = left {
			var page runproto.ListResult
			if err := c.call(ctx, "run/list", runproto.ListParams{Filter: f}, &page); err != nil {
				yield(spool.Info{}, err)
				return
			}
			for _, e := range page.Errors {
				if !yield(spool.Info{}, runproto.DecodeError(e)) {
					return
				}
			}
			for _, info := range page.Runs {
				if !yield(info, nil) {
					return
				}
				f.After = info.Cursor()
			}
			if left > 0 {
				left -= len(page.Runs)
			}
			if !page.More || f.Limit > 0 && left <= 0 || len(page.Runs) == 0 {
				return
			}
		}
	}
}

// Read implements [spool.Backend]. When the server is lost for good the page
// carries the failure.
func (c *Client) Read(ctx context.Context, id spool.RunID, q spool.Query) (spool.Page, error) {
	params := runproto.ReadParams{Run: id, After: q.After, MaxBytes: q.MaxBytes, WaitMs: q.Wait.Milliseconds()}
	if q.Wait > 0 && params.WaitMs == 0 {
		params.WaitMs = 1
	}
	var result runproto.ReadResult
	err := c.call(ctx, "run/read", params, &result)
	var lost *DisconnectedError
	if errors.As(err, &lost) {
		outcome := spool.Outcome{Kind: spool.Unknown, Reason: lost.Error()}
		return spool.Page{Next: q.After, Failure: lost.Error(), Info: spool.Info{
			ID: id, State: spool.StateClosed, Last: q.After, Outcome: &outcome,
		}}, nil
	}
	if err != nil {
		return spool.Page{}, err
	}
	return spool.Page{Events: result.Events, Next: result.Next, Info: result.Info}, nil
}

// Send implements [spool.Backend].
func (c *Client) Send(ctx context.Context, id spool.RunID, in spool.Input) (spool.Receipt, error) {
	if in.ID == "" {
		in.ID = newID()
	}
	var receipt spool.Receipt
	err := c.call(ctx, "run/send", runproto.SendParams{Run: id, Input: in}, &receipt)
	return receipt, err
}

// Control implements [spool.Backend].
func (c *Client) Control(ctx context.Context, id spool.RunID, ctl spool.Control) error {
	if ctl.ID == "" {
		ctl.ID = newID()
	}
	return c.call(ctx, "run/control", runproto.ControlParams{Run: id, Control: ctl}, nil)
}

// Blob implements [spool.Backend].
func (c *Client) Blob(ctx context.Context, id spool.RunID, d spool.Digest) (io.ReadCloser, error) {
	b := &blob{client: c, ctx: ctx, run: id, digest: d}
	if err := b.fill(); err != nil { // so that an unknown blob is an error here
		return nil, err
	}
	return b, nil
}

// blob reads a remote blob chunk by chunk.
type blob struct {
	client *Client
	ctx    context.Context
	run    spool.RunID
	digest spool.Digest
	offset int64
	chunk  []byte
	eof    bool
}

func (b *blob) fill() error {
	var result runproto.BlobResult
	err := b.client.call(b.ctx, "run/blob", runproto.BlobParams{Run: b.run, Digest: b.digest, Offset: b.offset}, &result)
	b.chunk, b.eof = result.Bytes, result.EOF
	b.offset += int64(len(result.Bytes))
	return err
}

func (b *blob) Read(p []byte) (int, error) {
	for len(b.chunk) == 0 {
		if b.eof {
			return 0, io.EOF
		}
		if err := b.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, b.chunk)
	b.chunk = b.chunk[n:]
	return n, nil
}

func (b *blob) Close() error { return nil }

// lostEvents are what a reader gets in place of the rest of a log that can no
// longer be read. They have no seq, because they are not in the log.
func lostEvents(id spool.RunID, lost error) []spool.Event {
	failed := spool.Outcome{Kind: spool.Unknown, Reason: lost.Error()}.Event()
	failed.Run, failed.Time = id, time.Now()
	return []spool.Event{failed, {Run: id, Time: failed.Time, Kind: spool.KindClosed}}
}
