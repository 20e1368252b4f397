package sandboxtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// ask waits for the next ask of a turn.
func (b *box) ask(turn *spool.Turn, after spool.Seq) (spool.Seq, spool.Ask) {
	b.t.Helper()
	e := b.next(turn, after, func(e *spool.Event) bool { return e.Kind == spool.KindAsk })
	var a spool.Ask
	if err := json.Unmarshal(e.Data, &a); err != nil {
		b.t.Fatal(err)
	}
	return e.Seq, a
}

func (b *box) answer(a spool.Answer) {
	b.t.Helper()
	if err := b.run.Answer(b.ctx, a, false); err != nil {
		b.t.Fatalf("answer %d: %v", a.Ask, err)
	}
}

func surfacesRPC(t *testing.T, s Subject) {
	b := newLab(t, s).start(func(_ *spool.Spec, c *python.SandboxConfig) { c.Offer = []string{"fs.*"} })
	turn := b.exec(spool.Cell{Code: `
import spool
print("begin")
spool.fs.mkdir("/workspace/notes", recursive=True)
spool.fs.write("/workspace/notes/a.txt", "hello from python")
content = spool.fs.read("/workspace/notes/a.txt")
st = spool.fs.stat("/workspace/notes/a.txt")
print(content, oct(st.mode), st.size, st.is_directory, st.is_symbolic_link, spool.fs.readdir("/workspace/notes"))
`})
	at := turn.Seq()
	for _, step := range []struct{ kind, data, answer string }{
		{"fs.mkdir", `{"path":"/workspace/notes","recursive":true}`, `{}`},
		{"fs.write", `{"path":"/workspace/notes/a.txt","content_base64":"aGVsbG8gZnJvbSBweXRob24="}`, `{}`},
		{"fs.read", `{"path":"/workspace/notes/a.txt"}`, `{"content_base64":"aGVsbG8gZnJvbSBob3N0"}`},
		{"fs.stat", `{"path":"/workspace/notes/a.txt"}`, `{"stat":{"mode":33188,"size":15,"is_directory":false,"is_symbolic_link":false}}`},
		{"fs.readdir", `{"path":"/workspace/notes"}`, `{"entries":["a.txt"]}`},
	} {
		seq, ask := b.ask(turn, at)
		if ask.Kind != step.kind || !sameJSON(ask.Data, step.data) || ask.Deadline.IsZero() {
			t.Fatalf("asked %s %s (until %v), want %s %s", ask.Kind, ask.Data, ask.Deadline, step.kind, step.data)
		}
		b.answer(spool.Answer{Ask: seq, Data: json.RawMessage(step.answer)})
		at = seq
	}
	e := b.wait(turn)
	want := "begin\nb'hello from host' 0o100644 15 False False ['a.txt']\n"
	if e.stdout != want || e.done.Outcome != spool.TurnOK {
		t.Errorf("stdout %q, want %q; stderr %q", e.stdout, want, e.stderr)
	}
}

func sameJSON(a json.RawMessage, b string) bool {
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal([]byte(b), &y) == nil && text(x) == text(y)
}

func rpcErrors(t *testing.T, s Subject) {
	b := newLab(t, s).start(func(_ *spool.Spec, c *python.SandboxConfig) {
		c.Offer = []string{"fs.*", "http.request", "dns.lookup", "subprocess.run", "my.*"}
	})
	turn := b.exec(spool.Cell{Code: `
import errno, spool
try:
    spool.fs.read("/x")
except FileNotFoundError as e:
    print(e.errno == errno.ENOENT, e.filename, e.strerror)
try:
    spool.fs.write("/x", b"")
except OSError as e:
    print(errno.errorcode[e.errno])
try:
    spool.ask("my.own", n=1)
except spool.HostError as e:
    print(e.code, e)
print(spool.ask("my.own", n=2))
import urllib.request
with urllib.request.urlopen("http://example.org/a") as r:
    print(r.status, r.headers["content-type"], r.read(2), r.read())
import socket
print(socket.getaddrinfo("example.org", 80)[0][4])
import subprocess
print(subprocess.run(["uname", "-s"], capture_output=True, text=True))
`})
	at := turn.Seq()
	for _, a := range []spool.Answer{
		{Error: &spool.AnswerError{Code: "ENOENT", Message: "no such file"}},
		{Error: &spool.AnswerError{Code: "EROFS", Message: "read-only"}},
		{Error: &spool.AnswerError{Code: "ERR_MINE", Message: "because"}},
		{Data: json.RawMessage(`{"three":[1,2,3]}`)},
		{Data: json.RawMessage(`{"status":200,"reason":"OK","url":"http://example.org/a","headers":{"Content-Type":["text/plain"]},"body_base64":"Ym9keQ=="}`)},
		{Data: json.RawMessage(`{"addresses":["192.0.2.1"]}`)},
		{Data: json.RawMessage(`{"exit_code":0,"stdout":"Linux\n","stderr":""}`)},
	} {
		seq, _ := b.ask(turn, at)
		a.Ask = seq
		b.answer(a)
		at = seq
	}
	e := b.wait(turn)
	want := "True /x no such file\nEROFS\nERR_MINE because\n{'three': [1, 2, 3]}\n200 text/plain b'bo' b'dy'\n('192.0.2.1', 80)\n" +
		"CompletedProcess(args=['uname', '-s'], returncode=0, stdout='Linux\\n', stderr='')\n"
	if e.stdout != want {
		t.Errorf("stdout %q\nwant   %q\nstderr %q", e.stdout, want, e.stderr)
	}
}

func rpcTimesOut(t *testing.T, s Subject) {
	b := newLab(t, s).start(func(_ *spool.Spec, c *python.SandboxConfig) {
		c.Offer = []string{"fs.read"}
		c.Limits.AskMs = 50
	})
	turn := b.exec(spool.Cell{Code: "import spool\nspool.fs.read('/workspace/never.txt')"})
	seq, _ := b.ask(turn, turn.Seq())
	e := b.wait(turn)
	if *e.done.ExitCode != 1 || !strings.Contains(e.stderr, "fs.read timed out after 50ms") || e.done.EndedBy != "" {
		t.Errorf("done %s, stderr %q", text(e.done), e.stderr)
	}
	if err := b.run.Reply(b.ctx, seq, map[string]string{}); !errors.Is(err, spool.ErrNotAsked) {
		t.Errorf("a late answer: %v, want it refused", err)
	}
	turn = b.exec(spool.Cell{Code: "import spool\ntry:\n    spool.fs.read('/x')\nexcept TimeoutError as e:\n    print('caught:', e)"})
	if e := b.wait(turn); e.stdout != "caught: fs.read timed out after 50ms\n" {
		t.Errorf("stdout %q, stderr %q", e.stdout, e.stderr)
	}
}

func notOfferedIsDenied(t *testing.T, s Subject) {
	b := newLab(t, s).start(func(_ *spool.Spec, c *python.SandboxConfig) {
		c.Offer, c.Hosts = []string{"http.request"}, []string{"example.org", "*.good.test"}
	})
	e := b.do(`
import spool, urllib.request, subprocess, socket
def attempt(name, f):
    try:
        f()
    except PermissionError as e:
        print(name, "PermissionError", e.strerror)
    except BaseException as e:
        print(name, type(e).__name__, e)
attempt("read", lambda: spool.fs.read("/etc/passwd"))
attempt("run", lambda: subprocess.run(["id"]))
attempt("dns", lambda: spool.dns.lookup("example.org"))
attempt("http", lambda: spool.http.request("http://evil.test/"))
attempt("suffix", lambda: spool.http.request("http://notgood.test/"))
attempt("user", lambda: spool.http.request("http://example.org@evil.test/"))
attempt("file", lambda: spool.http.request("file:///etc/passwd"))
attempt("open", lambda: urllib.request.urlopen("http://127.0.0.1:1/"))
`)
	for _, want := range []string{
		"read PermissionError fs.read is not offered", "run PermissionError subprocess.run: no processes are offered",
		"dns PermissionError dns.lookup: network access is not offered", `http PermissionError http.request: network access to "evil.test" is not offered`,
		"suffix PermissionError", "user PermissionError", "file PermissionError", "open URLError",
	} {
		if !strings.Contains(e.stdout, want) {
			t.Errorf("output lacks %q:\n%s%s", want, e.stdout, e.stderr)
		}
	}
	for _, ev := range e.events {
		if ev.Kind == spool.KindAsk {
			t.Errorf("asked %s", ev.Data)
		}
	}
}

// blocksNetwork tries every way to the network as the first thing a new
// interpreter does.
func blocksNetwork(t *testing.T, s Subject) {
	tr := setTrap(t)
	b := newLab(t, s).start(func(_ *spool.Spec, c *python.SandboxConfig) { c.Fresh = true })
	url := fmt.Sprintf("http://127.0.0.1:%d/", tr.port)
	for _, code := range []string{
		"import urllib.request\nurllib.request.urlopen(URL).read()",
		"import http.client\nc = http.client.HTTPConnection('127.0.0.1', PORT, timeout=2)\nc.request('GET', '/')\nc.getresponse().read()",
		"import socket\nsocket.create_connection(('127.0.0.1', PORT), 2)",
		"import js\nawait js.fetch(URL)",
		"from pyodide.http import pyfetch\nawait pyfetch(URL)",
		"from pyodide.http import open_url\nopen_url(URL).read()",
	} {
		prelude := fmt.Sprintf("URL, PORT = %q, %d\n", url, tr.port)
		e := b.wait(b.exec(spool.Cell{Code: prelude + code, TimeoutMs: 20_000}))
		if e.done.Outcome == spool.TurnOK {
			t.Errorf("%s\nworked", code)
		}
		for _, ev := range e.events {
			if ev.Kind == spool.KindAsk {
				t.Errorf("%s\nasked %s", code, ev.Data)
			}
		}
	}
	if n := tr.conns.Load(); n > 0 {
		t.Errorf("the network was reached %d times", n)
	}
	b.alive()
}

func inputAsks(t *testing.T, s Subject) {
	b := newLab(t, s).start(func(_ *spool.Spec, c *python.SandboxConfig) { c.Offer = []string{"input"} })
	turn := b.exec(spool.Cell{Code: "name = input('who? ')\nprint('hello', name)\nimport getpass\nprint(len(getpass.getpass()))\ninput()"})
	seq, ask := b.ask(turn, turn.Seq())
	if ask.Kind != spool.AskInput || ask.Prompt != "who? " || ask.Secret {
		t.Errorf("asked %s", text(ask))
	}
	b.answer(spool.Answer{Ask: seq, Data: json.RawMessage(`"world"`)})
	seq, ask = b.ask(turn, seq)
	if ask.Kind != spool.AskInput || !ask.Secret {
		t.Errorf("asked %s", text(ask))
	}
	b.answer(spool.Answer{Ask: seq, Data: json.RawMessage(`"12345"`)})
	seq, _ = b.ask(turn, seq)
	b.answer(spool.Answer{Ask: seq, Error: &spool.AnswerError{Code: "EOF", Message: "the end"}})
	if e := b.wait(turn); e.stdout != "hello world\n5\n" || e.done.ErrorClass != "EOFError" {
		t.Errorf("stdout %q, done %s, stderr %q", e.stdout, text(e.done), e.stderr)
	}
}
