package execserver_test

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/spool-run/spool/internal/codextest"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/wire/execserver"
	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
	"github.com/spool-run/spool/internal/wire/rpc"
)

var update = flag.Bool("update", false, "rewrite testdata/*.txtar: from the reference for files that say \"reference: same\", from our server otherwise")

// patience is how long a test waits for an expected event. It passes only when
// something is broken.
const patience = 3 * time.Minute

// TestConformance runs the dialogues in testdata against our server. It runs
// files that say "reference: same" against the real codex exec-server as well,
// which proves that clients expect these answers.
//
// Every file of an archive is a dialogue with its own connections. Its lines
// are as follows, prefixed with the name of a connection if it is not A:
//
//	> TEXT     send a text message
//	>x HEX     send a binary message
//	init       perform the handshake
//	resume     perform the handshake of $SESSION, once the server has noticed
//	           the end of the connection that had it; the answer follows:
//	= JSON     the answer
//	< JSON     the next answer to any request
//	wait ID    wait until a process is closed; its notifications follow:
//	= JSON     one notification, in order of seq
//	output ID  wait until a process is closed and show its output and exit
//	           code; for cases in which the reference may exit before its
//	           output
//	close      the server closes the connection
//	drop       the client closes the connection
//	# TEXT     a comment
//
// $D is the URI of an empty directory, $P its path, $SESSION the last session
// that init or an answer named.
func TestConformance(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(files) == 0 {
		t.Fatalf("no dialogues: %v", err)
	}
	for _, file := range files {
		archive, err := txtar.ParseFile(file)
		if err != nil {
			t.Fatal(err)
		}
		same := bytes.Contains(archive.Comment, []byte("reference: same"))
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txtar"), func(t *testing.T) {
			url, _ := newServer(t, execserver.Options{})
			if same && !testing.Short() {
				reference := referenceURL(t)
				if *update {
					url = reference
				} else {
					t.Run("reference", func(t *testing.T) { converseAll(t, reference, archive) })
				}
			}
			t.Run("ours", func(t *testing.T) { converseAll(t, url, archive) })
			if *update {
				if err := os.WriteFile(file, txtar.Format(archive), 0o644); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// referenceURL starts a real codex exec-server for the test.
func referenceURL(t *testing.T) string {
	t.Helper()
	s, err := codextest.StartServer(codextest.Binary(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s.URL()
}

func converseAll(t *testing.T, url string, archive *txtar.Archive) {
	for i := range archive.Files {
		f := &archive.Files[i]
		t.Run(f.Name, func(t *testing.T) {
			d := newDialogue(t, url)
			got := d.run(string(f.Data))
			if *update {
				f.Data = []byte(got)
				return
			}
			if diff := cmp.Diff(d.canonical(string(f.Data)), got); diff != "" {
				t.Errorf("the dialogue differs (-want +got):\n%s", diff)
			}
		})
	}
}

// dialogue is a scripted exchange over any number of connections.
type dialogue struct {
	*testing.T
	url     string
	dir     string
	session string
	conns   map[string]*peer
}

func newDialogue(t *testing.T, url string) *dialogue {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return &dialogue{T: t, url: url, dir: dir, conns: make(map[string]*peer)}
}

var scriptLine = regexp.MustCompile(`^([A-Z]?) ?(>x|>|<|=|#|init|resume|wait|output|close|drop)(?: (.*))?$`)

// run performs the script and returns the dialogue as it happened.
func (d *dialogue) run(script string) string {
	var out strings.Builder
	for line := range strings.Lines(script) {
		line = strings.TrimRight(line, "\n")
		if strings.TrimSpace(line) == "" {
			out.WriteString(line + "\n")
			continue
		}
		m := scriptLine.FindStringSubmatch(line)
		if m == nil {
			d.Fatalf("line %q is malformed", line)
		}
		name, verb, text := m[1], m[2], m[3]
		prefix := name
		if name != "" && verb[0] >= 'a' {
			prefix += " "
		}
		switch verb {
		case "=":
			continue // written by wait
		case "<":
			fmt.Fprintf(&out, "%s< %s\n", prefix, d.outside(d.peer(name).answer(d.T)))
			continue
		}
		out.WriteString(line + "\n")
		switch verb {
		case ">":
			d.peer(name).send(d.T, websocket.MessageText, []byte(d.inside(text)))
		case ">x":
			b, err := hex.DecodeString(text)
			if err != nil {
				d.Fatal(err)
			}
			d.peer(name).send(d.T, websocket.MessageBinary, b)
		case "init":
			d.session = d.peer(name).initialize(d.T, nil)
		case "resume":
			fmt.Fprintf(&out, "%s= %s\n", name, d.outside(d.peer(name).resume(d.T, d.session)))
		case "wait":
			for _, note := range d.peer(name).closed(d.T, text) {
				fmt.Fprintf(&out, "%s= %s\n", prefix, d.outside(note))
			}
		case "output":
			fmt.Fprintf(&out, "%s= %s\n", prefix, d.outside(outputOf(d.T, d.peer(name).closed(d.T, text))))
		case "close":
			d.peer(name).ended(d.T)
			delete(d.conns, name)
		case "drop":
			d.peer(name).conn.CloseNow()
			d.peer(name).ended(d.T)
			delete(d.conns, name)
		}
	}
	return out.String()
}

func (d *dialogue) peer(name string) *peer {
	if d.conns[name] == nil {
		d.conns[name] = dialPeer(d.T, d.url)
	}
	return d.conns[name]
}

// inside replaces variables with their values.
func (d *dialogue) inside(s string) string {
	return strings.NewReplacer("$D", fileuri.Format(d.dir), "$P", d.dir, "$SESSION", d.session).Replace(s)
}

// structType is the name that the reference gives to the params of a method.
var structType = regexp.MustCompile(`expected (struct \w+|an object)$`)

var parseFailure = regexp.MustCompile(`(failed to parse websocket JSON-RPC message from exec-server websocket )[0-9.:]+: .*`)

// outside writes a message as the scripts do: members sorted, values replaced
// with variables, and a star for unpredictable values.
func (d *dialogue) outside(msg []byte) string {
	v := parseJSON(d.T, msg)
	if m, ok := v.(map[string]any); ok {
		if result, ok := m["result"].(map[string]any); ok {
			if id, ok := result["sessionId"].(string); ok {
				d.session = id
			}
			if result["environmentInfo"] != nil {
				result["environmentInfo"] = "*"
			}
		}
		if e, ok := m["error"].(map[string]any); ok {
			text := parseFailure.ReplaceAllString(e["message"].(string), "$1*")
			e["message"] = structType.ReplaceAllString(text, "expected *")
		}
	}
	s := encodeJSON(d.T, v)
	if d.session != "" {
		s = strings.ReplaceAll(s, d.session, "$SESSION")
	}
	return strings.NewReplacer(fileuri.Format(d.dir), "$D", d.dir, "$P").Replace(s)
}

// canonical sorts the members of the messages in a script.
func (d *dialogue) canonical(script string) string {
	var out strings.Builder
	for line := range strings.Lines(script) {
		if m := scriptLine.FindStringSubmatch(strings.TrimRight(line, "\n")); m != nil && (m[2] == "<" || m[2] == "=") && m[3] != "" {
			line = m[1] + m[2] + " " + encodeJSON(d.T, parseJSON(d.T, []byte(m[3]))) + "\n"
		}
		out.WriteString(line)
	}
	return out.String()
}

func parseJSON(t *testing.T, b []byte) any {
	t.Helper()
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v in %q", err, b)
	}
	return v
}

func encodeJSON(t *testing.T, v any) string {
	t.Helper()
	var b strings.Builder
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// peer is a client that only carries messages. It separates answers from the
// notifications of each process, because their relative order is not defined.
type peer struct {
	conn    *websocket.Conn
	answers chan []byte
	done    chan struct{} // closed when the connection ended
	id      int           // of the last request by call

	mu    sync.Mutex
	notes map[string]map[uint64][]byte // by process and seq
	order map[string][]uint64          // seqs in order of arrival
	news  chan struct{}                // closed and replaced on each notification
}

// dialPeer opens a connection that is closed with the test.
func dialPeer(t *testing.T, url string) *peer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	c, _, err := websocket.Dial(ctx, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	c.SetReadLimit(2 * rpc.MaxMessage)
	p := &peer{
		conn: c, answers: make(chan []byte, 1<<16), done: make(chan struct{}),
		notes: make(map[string]map[uint64][]byte), order: make(map[string][]uint64), news: make(chan struct{}),
	}
	go p.read()
	t.Cleanup(func() {
		_ = c.CloseNow()
		<-p.done
	})
	return p
}

func (p *peer) read() {
	defer close(p.done)
	for {
		_, b, err := p.conn.Read(context.Background())
		if err != nil {
			return
		}
		var m struct {
			Method string
			Params struct {
				ProcessID string
				Seq       uint64
			}
		}
		if json.Unmarshal(b, &m) != nil || m.Method == "" {
			p.answers <- b
			continue
		}
		p.mu.Lock()
		id := m.Params.ProcessID
		if p.notes[id] == nil {
			p.notes[id] = make(map[uint64][]byte)
		}
		p.notes[id][m.Params.Seq] = b
		p.order[id] = append(p.order[id], m.Params.Seq)
		close(p.news)
		p.news = make(chan struct{})
		p.mu.Unlock()
	}
}

func (p *peer) send(t *testing.T, typ websocket.MessageType, b []byte) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := p.conn.Write(ctx, typ, b); err != nil {
		t.Fatalf("send %.200q: %v", b, err)
	}
}

// answer returns the next answer.
func (p *peer) answer(t *testing.T) []byte {
	t.Helper()
	select {
	case b := <-p.answers:
		return b
	case <-p.done:
	case <-time.After(patience):
		t.Fatal("no answer")
	}
	select {
	case b := <-p.answers: // it came before the end
		return b
	default:
		t.Fatal("the connection ended instead of an answer")
	}
	return nil
}

// ended waits for the end of the connection and checks that no message precedes
// it.
func (p *peer) ended(t *testing.T) {
	t.Helper()
	select {
	case <-p.done:
	case <-time.After(patience):
		t.Fatal("the connection stays open")
	}
	select {
	case b := <-p.answers:
		t.Errorf("before the end of the connection: %s", b)
	default:
	}
}

// request sends a request and returns its id.
func (p *peer) request(t *testing.T, method string, params any) int {
	t.Helper()
	raw, err := json.Marshal(params)
	if err != nil {
		t.Fatal(err)
	}
	p.id++
	p.send(t, websocket.MessageText, fmt.Appendf(nil, `{"id":%d,"method":%q,"params":%s}`, p.id, method, raw))
	return p.id
}

// response is a decoded answer.
type response struct {
	ID     int
	Result json.RawMessage
	Error  *rpc.Error
}

func (p *peer) response(t *testing.T) response {
	t.Helper()
	b := p.answer(t)
	var r response
	if err := json.Unmarshal(b, &r); err != nil {
		t.Fatalf("answer %.200q: %v", b, err)
	}
	return r
}

// call sends a request and waits for its answer, which must be the next one.
func (p *peer) call(t *testing.T, method string, params, result any) error {
	t.Helper()
	id := p.request(t, method, params)
	r := p.response(t)
	if r.ID != id {
		t.Fatalf("answer to %d instead of %d", r.ID, id)
	}
	if r.Error != nil {
		return r.Error
	}
	if result != nil {
		if err := json.Unmarshal(r.Result, result); err != nil {
			t.Fatalf("result of %s: %v in %s", method, err, r.Result)
		}
	}
	return nil
}

// mustCall is call for requests that must succeed.
func (p *peer) mustCall(t *testing.T, method string, params, result any) {
	t.Helper()
	if err := p.call(t, method, params, result); err != nil {
		t.Fatalf("%s: %v", method, err)
	}
}

// initialize performs the handshake and returns the session.
func (p *peer) initialize(t *testing.T, resume any) string {
	t.Helper()
	session, err := p.tryInitialize(t, resume)
	if err != nil {
		t.Fatalf("initialize: %v", err)
	}
	return session
}

// resume performs the handshake of a session whose connection has ended, as soon
// as the server has noticed that, and returns the answer.
func (p *peer) resume(t *testing.T, session string) (answer []byte) {
	t.Helper()
	polltest.Until(t, "resumed", func() bool {
		p.send(t, websocket.MessageText, fmt.Appendf(nil, `{"id":1,"method":"initialize","params":{"clientName":"test","resumeSessionId":%q}}`, session))
		answer = p.answer(t)
		var r response
		if err := json.Unmarshal(answer, &r); err != nil {
			t.Fatal(err)
		}
		return r.Error == nil || r.Error.Code != -32010
	})
	p.send(t, websocket.MessageText, []byte(`{"method":"initialized","params":{}}`))
	return answer
}

func (p *peer) tryInitialize(t *testing.T, resume any) (string, error) {
	t.Helper()
	var result struct{ SessionID string }
	err := p.call(t, "initialize", map[string]any{"clientName": "test", "resumeSessionId": resume}, &result)
	if err == nil {
		p.send(t, websocket.MessageText, []byte(`{"method":"initialized","params":{}}`))
	}
	return result.SessionID, err
}

// until waits until the condition holds and checks it after each notification.
// It calls the condition with p.mu held.
func (p *peer) until(t *testing.T, what string, cond func() bool) {
	t.Helper()
	timeout, ended := time.After(patience), false
	for {
		p.mu.Lock()
		ok, news := cond(), p.news
		p.mu.Unlock()
		if ok {
			return
		}
		if ended {
			t.Fatalf("the connection ended while waiting for %s", what)
		}
		select {
		case <-news:
		case <-p.done:
			ended = true // after the last notification
		case <-timeout:
			t.Fatalf("no %s", what)
		}
	}
}

// closed waits until a process is closed and its notifications are complete,
// and returns them in order of seq.
func (p *peer) closed(t *testing.T, process string) [][]byte {
	t.Helper()
	p.until(t, "complete log of "+process, func() bool {
		last := uint64(0)
		for seq, b := range p.notes[process] {
			if bytes.HasPrefix(b, []byte(`{"method":"process/closed"`)) {
				last = seq
			}
		}
		return last != 0 && uint64(len(p.notes[process])) == last
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	var all [][]byte
	for _, seq := range slices.Sorted(maps.Keys(p.notes[process])) {
		all = append(all, p.notes[process][seq])
	}
	return all
}

// note is a notification about a process.
type note struct {
	Method string
	Params struct {
		ProcessID string
		Seq       uint64
		Stream    string
		Chunk     []byte
		ExitCode  int
	}
}

// outputOf summarizes notifications.
func outputOf(t *testing.T, notes [][]byte) []byte {
	t.Helper()
	sum := make(map[string]any)
	for _, b := range notes {
		var n note
		if err := json.Unmarshal(b, &n); err != nil {
			t.Fatal(err)
		}
		switch n.Method {
		case "process/output":
			before, _ := sum[n.Params.Stream].(string)
			sum[n.Params.Stream] = before + string(n.Params.Chunk)
		case "process/exited":
			sum["exit"] = n.Params.ExitCode
		}
	}
	return []byte(encodeJSON(t, sum))
}

// code returns the code of a JSON-RPC error, or zero for other errors.
func code(err error) int {
	var e *rpc.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return 0
}
