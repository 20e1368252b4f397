package execserver_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/eventlog"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/store"
	"github.com/spool-run/spool/internal/wire/execserver"
	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// runClient is a client of run/* that shows every message in the order it
// came.
type runClient struct {
	*testing.T
	conn *websocket.Conn
	id   int
}

func dialRuns(t *testing.T, url string, protocols ...string) *runClient {
	t.Helper()
	c, _, err := websocket.Dial(t.Context(), url, &websocket.DialOptions{Subprotocols: protocols})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.CloseNow() })
	c.SetReadLimit(rpc.MaxMessage)
	r := &runClient{T: t, conn: c}
	r.must("initialize", map[string]any{"clientName": "test"}, nil)
	r.notify("initialized", nil)
	return r
}

func (c *runClient) write(b []byte) {
	c.Helper()
	if err := c.conn.Write(c.Context(), websocket.MessageText, b); err != nil {
		c.Fatal(err)
	}
}

func (c *runClient) notify(method string, params any) {
	c.Helper()
	p, err := json.Marshal(params)
	if err != nil {
		c.Fatal(err)
	}
	c.write(fmt.Appendf(nil, `{"method":%q,"params":%s}`, method, p))
}

// next returns the next message.
func (c *runClient) next() (typ websocket.MessageType, b []byte, m rpc.Message) {
	c.Helper()
	ctx, cancel := context.WithTimeout(c.Context(), patience)
	defer cancel()
	typ, b, err := c.conn.Read(ctx)
	if err != nil {
		c.Fatal(err)
	}
	if typ == websocket.MessageText {
		if m, err = rpc.Parse(b); err != nil { // which has the limits of a peer
			c.Fatal(err)
		}
	}
	return typ, b, m
}

// call makes a request; its answer must be the next message.
func (c *runClient) call(method string, params, result any) error {
	c.Helper()
	c.id++
	c.write([]byte(encode(c.T, c.id, method, params)))
	_, b, m := c.next()
	switch {
	case m.Error != nil:
		return m.Error
	case string(m.ID) != fmt.Sprint(c.id):
		c.Fatalf("%s: %.300s", method, b)
	case result != nil:
		if err := json.Unmarshal(m.Result, result); err != nil {
			c.Fatal(err)
		}
	}
	return nil
}

func (c *runClient) must(method string, params, result any) {
	c.Helper()
	if err := c.call(method, params, result); err != nil {
		c.Fatalf("%s: %v", method, err)
	}
}

func (c *runClient) start(spec spool.Spec) spool.RunID {
	c.Helper()
	var info spool.Info
	c.must("run/start", spec, &info)
	return info.ID
}

func script(text string) spool.Spec {
	return spool.Spec{Argv: []string{"/bin/sh", "-c", text}, Cwd: "/", Env: map[string]string{"PATH": os.Getenv("PATH")}}
}

// event returns the event of a run/event notification.
func (c *runClient) event(m rpc.Message) spool.Event {
	c.Helper()
	var p runproto.EventParams
	if m.Method != "run/event" || json.Unmarshal(m.Params, &p) != nil {
		c.Fatalf("%s %s is not an event", m.Method, m.Params)
	}
	return p.Event
}

func TestRunFollow(t *testing.T) {
	const window = 100_000
	for _, mode := range []string{"JSON", "binary"} {
		t.Run(mode, func(t *testing.T) {
			url, h := newServer(t, execserver.Options{})
			var protocols []string
			if mode == "binary" {
				protocols = []string{runproto.Subprotocol}
			}
			c := dialRuns(t, url, protocols...)
			id := c.start(script("head -c 1000000 /dev/zero"))
			waitClosed(t, h)
			c.must("run/follow", runproto.FollowParams{Follow: 7, Run: id, Window: window}, nil)
			var seq spool.Seq
			var ahead, largest int64
			total := 0
			for {
				typ, b, m := c.next()
				var events []spool.Event
				switch {
				case m.Method == "run/end":
					if seq == 0 || total != 1_000_000 {
						t.Errorf("ended after %d events and %d bytes", seq, total)
					}
					return
				case typ == websocket.MessageBinary:
					if b[0] != runproto.BinaryEvents || binary.LittleEndian.Uint32(b[1:]) != 7 {
						t.Fatalf("header %v", b[:runproto.BinaryHeader])
					}
					for rest := b[runproto.BinaryHeader:]; len(rest) > 0; {
						e, n, err := record.Decode(rest)
						if err != nil {
							t.Fatal(err)
						}
						events, rest = append(events, e), rest[n:]
					}
				default:
					events = append(events, c.event(m))
				}
				for _, e := range events {
					if e.Seq != seq+1 {
						t.Fatalf("event %d after %d", e.Seq, seq)
					}
					seq = e.Seq
					total += len(e.Bytes)
					ahead += int64(record.HeaderSize + e.Size())
					largest = max(largest, int64(record.HeaderSize+e.Size()))
				}
				if ahead >= window+largest {
					t.Fatalf("%d bytes came ahead", ahead)
				}
				// Nothing more comes before an answer to this, had
				// the server no credit left.
				if ahead >= window {
					c.must("run/stat", runproto.RunParams{Run: id}, nil)
					c.notify("run/ack", runproto.AckParams{Follow: 7, Bytes: ahead})
					ahead = 0
				}
			}
		})
	}
}

// Many readers on one connection that does not read keep the readers of other
// connections from nothing, and get all events when the connection reads.
func TestManyFollowsOfAConnectionThatDoesNotRead(t *testing.T) {
	url, h := newServer(t, execserver.Options{})
	slow, fast := dialRuns(t, url, runproto.Subprotocol), dialRuns(t, url, runproto.Subprotocol)
	id := fast.start(script("head -c 1000000 /dev/zero"))
	waitClosed(t, h)
	const follows, window = 48, 8 << 20
	for n := range uint32(follows) {
		slow.write([]byte(encode(t, 100+int(n), "run/follow", runproto.FollowParams{Follow: n, Run: id, Window: window})))
	}
	// follow reads until so many follows have ended, and returns the bytes of each.
	follow := func(c *runClient, ends int) map[uint32]int {
		got := make(map[uint32]int)
		for ends > 0 {
			typ, b, m := c.next()
			switch {
			case m.Error != nil:
				t.Fatal(m.Error)
			case m.Method == "run/end":
				ends--
			case typ == websocket.MessageBinary:
				n := binary.LittleEndian.Uint32(b[1:])
				for e, err := range record.Events(id, oneBatch(b[runproto.BinaryHeader:])) {
					if err != nil {
						t.Fatal(err)
					}
					got[n] += len(e.Bytes)
				}
			}
		}
		return got
	}
	for n := range uint32(20) {
		fast.must("run/follow", runproto.FollowParams{Follow: n, Run: id, Window: window}, nil)
		if got := follow(fast, 1); got[n] != 1_000_000 {
			t.Fatalf("beside a connection that does not read: %v", got)
		}
	}
	got := follow(slow, follows)
	for n := range uint32(follows) {
		if got[n] != 1_000_000 {
			t.Errorf("follow %d got %d bytes", n, got[n])
		}
	}
}

// oneBatch is an iterator of one batch.
func oneBatch(records []byte) iter.Seq2[*record.Batch, error] {
	return func(yield func(*record.Batch, error) bool) {
		b := record.NewBatch(records)
		yield(&b, nil)
	}
}

func TestRunUnfollow(t *testing.T) {
	url, _ := newServer(t, execserver.Options{})
	c := dialRuns(t, url)
	spec := script("echo one; read x; echo two")
	spec.Stdin = true
	id := c.start(spec)
	c.must("run/follow", runproto.FollowParams{Follow: 1, Run: id}, nil)
	if _, _, m := c.next(); string(c.event(m).Bytes) != "one\n" {
		t.Errorf("first event %s", m.Params)
	}
	if err := c.call("run/follow", runproto.FollowParams{Follow: 1, Run: id}, nil); code(err) != -32600 {
		t.Errorf("the same follow twice: %v", err)
	}
	c.notify("run/unfollow", runproto.UnfollowParams{Follow: 1})
	c.must("run/stat", runproto.RunParams{Run: id}, nil)
	c.must("run/close_stdin", runproto.RunParams{Run: id}, nil)
	var page runproto.ReadResult
	c.must("run/read", runproto.ReadParams{Run: id, After: 1, WaitMs: 60_000}, &page)
	if len(page.Events) == 0 || string(page.Events[0].Bytes) != "two\n" {
		t.Errorf("after unfollow: %v", page.Events)
	}
}

func TestRunInputAndControl(t *testing.T) {
	url, _ := newServer(t, execserver.Options{})
	c := dialRuns(t, url)
	spec := script("stty -echo; echo ready; read x; stty size; read x")
	spec.TTY = &spool.Size{Rows: 5, Cols: 6}
	id := c.start(spec)
	wait := func(text string) {
		t.Helper()
		var seen string
		var after spool.Seq
		for !strings.Contains(seen, text) {
			var page runproto.ReadResult
			c.must("run/read", runproto.ReadParams{Run: id, After: after, WaitMs: 10_000}, &page)
			for _, e := range page.Events {
				seen += string(e.Bytes)
			}
			if after = page.Next; page.Info.State == spool.StateClosed && len(page.Events) == 0 {
				t.Fatalf("closed without %q: %q", text, seen)
			}
		}
	}
	wait("ready")
	c.must("run/resize", map[string]any{"run": id, "rows": 11, "cols": 22}, nil)
	for _, repeated := range []bool{false, true} {
		var receipt spool.Receipt
		c.must("run/send", runproto.SendParams{Run: id, Input: spool.Input{ID: "i", Kind: spool.InputStdin, Bytes: []byte("\n")}}, &receipt)
		if receipt.Repeated != repeated {
			t.Errorf("receipt %+v", receipt)
		}
	}
	wait("11 22")
	c.must("run/control", runproto.ControlParams{Run: id, Control: spool.Control{Op: spool.ControlKill}}, nil)
	wait("")
}

// TestRunReadStaysWithinTheLimitsOfAMessage reads what takes most room in
// JSON: bytes that are escaped, and many small events.
func TestRunReadStaysWithinTheLimitsOfAMessage(t *testing.T) {
	const escaped, small = 34, 40_000
	b := &loggedRun{log: eventlog.New(eventlog.Options{Run: "r", Memory: 1 << 30})}
	for i := range escaped + small {
		e := spool.Event{Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: []byte{'x'}}
		if i < escaped {
			e.Bytes = bytes.Repeat([]byte{1}, 256<<10)
		}
		if _, err := b.log.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	c := dialRaw(t, serveBackend(t, execserver.Options{Backend: b}))
	c.initialize(t)
	c.send(t, encode(t, 1, "run/read", runproto.ReadParams{Run: "r", MaxBytes: 1 << 30}))
	if _, size, frame := c.answer(t, 1); size < 6*runproto.DefaultWindow || size > rpc.MaxMessage || frame > 16<<20 {
		t.Errorf("escaped bytes: a message of %d bytes with a frame of %d", size, frame)
	}
	c.send(t, encode(t, 2, "run/read", runproto.ReadParams{Run: "r", After: escaped, MaxBytes: 1 << 30}))
	answer, _, _ := c.answer(t, 2)
	if _, err := rpc.Parse([]byte(`{"id":2,"result":` + string(answer.Result) + "}")); err != nil {
		t.Errorf("many events: %v", err)
	}
	var page runproto.ReadResult
	if err := json.Unmarshal(answer.Result, &page); err != nil {
		t.Fatal(err)
	}
	if n := len(page.Events); n < 10_000 || page.Next != page.Events[n-1].Seq || page.Events[0].Seq != escaped+1 {
		t.Errorf("%d events, next %d", n, page.Next)
	}
}

// storeOnly is a backend that has only blobs.
type storeOnly struct {
	spool.Backend
	store *store.Store
}

func (b storeOnly) Blob(_ context.Context, _ spool.RunID, d spool.Digest) (io.ReadCloser, error) {
	return b.store.Blob(d)
}

// loggedRun is a backend of one run, whose log is given.
type loggedRun struct {
	spool.Backend
	log *eventlog.Log
}

func (b *loggedRun) Read(_ context.Context, _ spool.RunID, q spool.Query) (spool.Page, error) {
	events, err := b.log.Read(q.After, q.MaxBytes)
	page := spool.Page{Events: events, Next: q.After}
	if n := len(events); n > 0 {
		page.Next = events[n-1].Seq
	}
	page.Info.Last, _ = b.log.Last()
	return page, err
}

// manyRuns is a backend that only lists.
type manyRuns struct {
	spool.Backend
	infos []spool.Info
}

func (b *manyRuns) List(_ context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		if f.After == "" && !yield(spool.Info{}, errors.New("one that cannot be read")) {
			return
		}
		n := 0
		for _, info := range b.infos {
			if !f.Match(&info) {
				continue
			}
			if n == f.Limit || !yield(info, nil) {
				return
			}
			n++
		}
	}
}

func TestRunListPages(t *testing.T) {
	tests := []struct {
		name string
		runs int
		argv []string
	}{
		{"many", 2500, []string{"true"}},
		{"long", 100, []string{strings.Repeat("x", 100_000)}},
		{"wordy", 300, make([]string, 1000)},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := &manyRuns{}
			for i := range tt.runs {
				b.infos = append(b.infos, spool.Info{ID: spool.RunID(fmt.Sprint("r", i)), Argv: tt.argv, Created: time.Unix(int64(tt.runs-i), 0)})
			}
			c := dialRuns(t, serveBackend(t, execserver.Options{Backend: b}))
			params := runproto.ListParams{}
			for n := 0; ; {
				var page runproto.ListResult
				c.must("run/list", params, &page)
				if first := params.Filter.After == ""; first != (len(page.Errors) == 1) {
					t.Errorf("after %q come %d errors", params.Filter.After, len(page.Errors))
				}
				for _, info := range page.Runs {
					if info.ID != b.infos[n].ID {
						t.Fatalf("run %s instead of %s", info.ID, b.infos[n].ID)
					}
					n++
				}
				if !page.More {
					if n != len(b.infos) {
						t.Errorf("%d runs", n)
					}
					break
				}
				params.Filter.After = page.Runs[len(page.Runs)-1].Cursor()
			}
			params.Filter.After = "nonsense"
			if err := runproto.DecodeError(c.call("run/list", params, nil)); !errors.Is(err, spool.ErrInvalid) {
				t.Errorf("after nonsense: %v", err)
			}
		})
	}
}

func TestRunBlob(t *testing.T) {
	dir := t.TempDir()
	s, err := store.Open(dir, store.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	content := strings.Repeat("blob ", 500_000)
	blob, err := s.PutBlob("text/plain", strings.NewReader(content))
	if err != nil {
		t.Fatal(err)
	}
	c := dialRuns(t, serveBackend(t, execserver.Options{Backend: storeOnly{store: s}}))
	var got []byte
	for eof := false; !eof; {
		var r runproto.BlobResult
		c.must("run/blob", runproto.BlobParams{Run: "r", Digest: blob.Digest, Offset: int64(len(got))}, &r)
		got, eof = append(got, r.Bytes...), r.EOF
	}
	if string(got) != content {
		t.Errorf("%d bytes instead of %d", len(got), len(content))
	}
	var r runproto.BlobResult
	c.must("run/blob", runproto.BlobParams{Run: "r", Digest: blob.Digest, Offset: 2, Max: 3}, &r)
	if string(r.Bytes) != content[2:5] || r.EOF {
		t.Errorf("chunk %s", base64.StdEncoding.EncodeToString(r.Bytes))
	}
	c.must("run/blob", runproto.BlobParams{Run: "r", Digest: blob.Digest, Offset: 1 << 40}, &r)
	if len(r.Bytes) != 0 || !r.EOF {
		t.Errorf("past the end: %d bytes, eof %v", len(r.Bytes), r.EOF)
	}
	if err := c.call("run/blob", runproto.BlobParams{Run: "r", Digest: blob.Digest, Offset: -1}, nil); code(err) != -32602 {
		t.Errorf("negative offset: %v", err)
	}
}

func TestRunErrorsKeepTheirIdentity(t *testing.T) {
	url, h := newServer(t, execserver.Options{})
	c := dialRuns(t, url)
	is := func(method string, params any, want error) {
		t.Helper()
		if err := runproto.DecodeError(c.call(method, params, nil)); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", method, err, want)
		}
	}
	for _, method := range []string{"run/stat", "run/read", "run/close_stdin"} {
		is(method, runproto.RunParams{Run: "none"}, spool.ErrNotFound)
	}
	id := c.start(script("true"))
	waitClosed(t, h)
	is("run/send", runproto.SendParams{Run: id, Input: spool.Input{Kind: spool.InputStdin}}, spool.ErrInputClosed)
	is("run/control", runproto.ControlParams{Run: id, Control: spool.Control{Op: spool.ControlInterrupt}}, spool.ErrEnded)
	is("run/start", spool.Spec{ID: "../x", Argv: []string{"true"}}, spool.ErrInvalid)
	is("run/start", spool.Spec{Argv: []string{"true"}, Cwd: "/no/such/directory"}, os.ErrNotExist)
	var se *spool.StartError
	err := runproto.DecodeError(c.call("run/start", spool.Spec{Argv: []string{"no-such-program"}}, nil))
	if !errors.As(err, &se) || se.Reason != "not_found" || se.Hint == "" {
		t.Errorf("start: %#v", err)
	}
}

// TestSpecIsStrict checks that a spec with a key that would be passed over is
// refused, with the key that was probably meant.
func TestSpecIsStrict(t *testing.T) {
	url, _ := newServer(t, execserver.Options{})
	c := dialRuns(t, url)
	for spec, want := range map[string]string{
		`{"argv":["true"],"limits":{"wall":5}}`:            `unknown key "limits.wall" in spec; did you mean "limits.wall_ms"?`,
		`{"argv":["true"],"envPolicy":{"inherit":"none"}}`: `unknown key "envPolicy" in spec; did you mean "env_policy"?`,
		`{"argv":["true"],"env_policy":{"include":["A"]}}`: `unknown key "env_policy.include" in spec; did you mean "env_policy.include_only"?`,
		`{"Argv":["true"]}`:                                `unknown key "Argv" in spec; did you mean "argv"?`,
		`{"argv":"true"}`:                                  `"argv" in spec must be an array, not a string`,
		`{"argv":["true"],"limits":{"wall_ms":"5s"}}`:      `must be a number of type int64, not a string`,
	} {
		err := runproto.DecodeError(c.call("run/start", json.RawMessage(spec), nil))
		var se *spool.StartError
		if !errors.As(err, &se) || se.Reason != "invalid" || !errors.Is(err, spool.ErrInvalid) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s\ngot  %v\nwant %s", spec, err, want)
		}
	}
	// A repeated key is no JSON-RPC message to begin with.
	for _, spec := range []string{`{"argv":["true"],"argv":["false"]}`, `{"argv":["true"],"env":{"A":"1","A":"2"}}`} {
		if err := c.call("run/start", json.RawMessage(spec), nil); err == nil || !strings.Contains(err.Error(), "duplicate field") {
			t.Errorf("%s: %v", spec, err)
		}
	}
}

// A connection has at most MaxFollows follows.
func TestFollowsAreBounded(t *testing.T) {
	url, _ := newServer(t, execserver.Options{})
	p, _ := session(t, url)
	var info spool.Info
	p.mustCall(t, "run/start", map[string]any{"argv": []string{"sleep", "1000"}}, &info)
	follow := func(n int) {
		t.Helper()
		p.request(t, "run/follow", map[string]any{"follow": n, "run": info.ID})
	}
	for n := range execserver.MaxFollows {
		follow(n)
	}
	for range execserver.MaxFollows {
		if r := p.response(t); r.Error != nil {
			t.Fatal(r.Error)
		}
	}
	follow(execserver.MaxFollows)
	if r := p.response(t); r.Error == nil || !strings.Contains(r.Error.Error(), "at most 4096 follows may be open") {
		t.Errorf("one more: %+v", r)
	}
	p.send(t, websocket.MessageText, []byte(`{"method":"run/unfollow","params":{"follow":7}}`))
	follow(7)
	if r := p.response(t); r.Error != nil {
		t.Errorf("after an unfollow: %+v", r)
	}
}
