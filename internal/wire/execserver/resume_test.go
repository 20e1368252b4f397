package execserver_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/fifotest"
	"github.com/spool-run/spool/internal/servertest"
	"github.com/spool-run/spool/internal/wire/execserver"
)

func TestDetachedSessionEndsWithItsProcesses(t *testing.T) {
	url, h := newServer(t, execserver.Options{Detached: 100 * time.Millisecond})
	p, id := session(t, url)
	p.mustCall(t, "process/start", shell("p", "echo before; exec sleep 1000"), nil)
	waitOutput(t, p, "p", "before")
	p.conn.CloseNow()
	info := waitClosed(t, h)
	if info.Outcome == nil || info.Outcome.Code != 137 {
		t.Errorf("outcome %v", info.Outcome)
	}
	q := dialPeer(t, url)
	if _, err := q.tryInitialize(t, id); code(err) != -32600 || !strings.Contains(err.Error(), "unknown session id "+id) {
		t.Errorf("resume after the window: %v", err)
	}
	q.initialize(t, nil)
	var page struct{ Events []spool.Event }
	q.mustCall(t, "run/read", map[string]any{"run": info.ID}, &page)
	if len(page.Events) != 3 || string(page.Events[0].Bytes) != "before\n" || page.Events[2].Kind != spool.KindClosed {
		t.Errorf("the log: %v", page.Events)
	}
}

// TestResumeLosesNothing checks that an event between the resume of a session
// and the read that catches up is pushed or read.
func TestResumeLosesNothing(t *testing.T) {
	url, _ := newServer(t, execserver.Options{})
	p, id := session(t, url)
	p.mustCall(t, "process/start", shell("p", "i=0; while :; do i=$((i+1)); echo $i; sleep 0.002; done"), nil)
	seen := make(map[uint64]bool)
	last := func(p *peer) (after uint64) {
		p.mu.Lock()
		defer p.mu.Unlock()
		for seq := range p.notes["p"] {
			seen[seq] = true
		}
		for seen[after+1] {
			after++
		}
		return after
	}
	for range 20 {
		at := last(p)
		p.until(t, "an event", func() bool { return uint64(len(p.notes["p"])) > 0 })
		p.conn.CloseNow()
		<-p.done
		at = max(at, last(p))
		p = dialPeer(t, url)
		p.resume(t, id)
		var r readResult
		p.mustCall(t, "process/read", map[string]any{"processId": "p", "afterSeq": at}, &r)
		for _, c := range r.Chunks {
			seen[c.Seq] = true
		}
		next := r.NextSeq
		p.until(t, "what follows the read", func() bool { return p.notes["p"][next] != nil })
	}
	p.mustCall(t, "process/terminate", map[string]any{"processId": "p"}, nil)
}

// TestResumeAfterMoreThanOneAnswer checks a client that missed more than fits
// into an answer: it reads once, and the server pushes the rest.
func TestResumeAfterMoreThanOneAnswer(t *testing.T) {
	url, _ := newServer(t, execserver.Options{})
	p, id := session(t, url)
	dir := t.TempDir()
	missed, written := fifotest.New(t, dir, "missed"), fifotest.New(t, dir, "written")
	p.mustCall(t, "process/start", shell("p", fmt.Sprintf("echo first; read _ <%s; head -c 4000000 /dev/zero; echo >%s", missed.Path, written.Path)), nil)
	waitOutput(t, p, "p", "first")
	p.conn.CloseNow()
	<-p.done
	if err := missed.Release(); err != nil {
		t.Fatal(err)
	}
	if err := written.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	p = dialPeer(t, url)
	p.resume(t, id)
	var r readResult
	p.mustCall(t, "process/read", map[string]any{"processId": "p", "afterSeq": 1}, &r)
	if r.Closed || r.Exited {
		t.Fatalf("the answer holds all: %d chunks", len(r.Chunks))
	}
	p.until(t, "the end", func() bool {
		return len(p.notes["p"]) > 0 && bytes.Contains(p.notes["p"][highest(p.notes["p"])], []byte("process/closed"))
	})
	p.mu.Lock()
	defer p.mu.Unlock()
	for seq, end := r.NextSeq, highest(p.notes["p"]); seq <= end; seq++ {
		if p.notes["p"][seq] == nil {
			t.Fatalf("event %d of %d was neither read nor pushed", seq, end)
		}
	}
}

func highest(notes map[uint64][]byte) (seq uint64) {
	for s := range notes {
		seq = max(seq, s)
	}
	return seq
}

func TestSessionSurvivesARestartOfTheServer(t *testing.T) {
	state := t.TempDir()
	s := servertest.Start(t, state)
	p, id := session(t, s.URL)
	p.mustCall(t, "process/start", shell("finished", "echo one; echo two >&2; exit 5"), nil)
	p.closed(t, "finished")
	live := shell("live", "echo alive; read x; echo \"$x\"; read y; exit 6")
	live["pipeStdin"] = true
	p.mustCall(t, "process/start", live, nil)
	waitOutput(t, p, "live", "alive")
	write := map[string]any{"processId": "live", "writeId": "w1", "chunk": "aGVsbG8K"} // hello
	p.mustCall(t, "process/write", write, nil)
	waitOutput(t, p, "live", "hello")
	s.Kill()
	<-p.done

	s = servertest.Start(t, state)
	p = dialPeer(t, s.URL)
	if got := p.initialize(t, id); got != id {
		t.Fatalf("session %s instead of %s", got, id)
	}
	var r readResult
	p.mustCall(t, "process/read", map[string]any{"processId": "finished"}, &r)
	if out, errs := r.of("stdout"), r.of("stderr"); out != "one\n" || errs != "two\n" || !r.Closed || !r.Exited || *r.ExitCode != 5 || r.Failure != nil {
		t.Errorf("finished: %+v", r)
	}
	// For the client it looks like a dropped connection: the process, its
	// sequence numbers and its write ids are the same.
	r = readResult{}
	p.mustCall(t, "process/read", map[string]any{"processId": "live"}, &r)
	if r.text() != "alive\nhello\n" || r.NextSeq != 3 || r.Closed || r.Exited {
		t.Errorf("live: %+v", r)
	}
	p.mustCall(t, "process/write", write, nil) // repeated, applied once
	write["writeId"], write["chunk"] = "w2", "Cg=="
	p.mustCall(t, "process/write", write, nil)
	p.until(t, "the end of the live process", func() bool { return p.notes["live"][4] != nil })
	r = readResult{}
	p.mustCall(t, "process/read", map[string]any{"processId": "live", "afterSeq": 2}, &r)
	if len(r.Chunks) != 0 || !r.Closed || *r.ExitCode != 6 || r.NextSeq != 5 || r.Failure != nil {
		t.Errorf("live at its end: %+v", r)
	}
	if err := p.call(t, "process/start", shell("finished", "true"), nil); code(err) != -32600 {
		t.Errorf("start under a taken id: %v", err)
	}
}
