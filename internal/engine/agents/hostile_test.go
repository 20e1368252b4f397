package agents

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/engine/enginetest"
)

// TestHostileChild holds the engine to it that whatever a child does, nothing
// hangs, nothing is lost, and nothing is left running.
func TestHostileChild(t *testing.T) {
	t.Run("ten_megabyte_line", func(t *testing.T) {
		const size = 10_000_000
		d, log := scripted(t, agent.Config{Agent: agent.Codex}, `echo '`+codexThread+`'
printf '{"type":"item.completed","item":{"id":"c","type":"command_execution","command":"yes","status":"completed","exit_code":0,"aggregated_output":"'
head -c `+fmt.Sprint(size)+` /dev/zero | tr '\0' y
printf '"}}\n'
printf '{"type":"item.completed","item":{"id":"m","type":"agent_message","text":"'
head -c `+fmt.Sprint(size)+` /dev/zero | tr '\0' z
printf '"}}\n'
echo '`+codexOver+`'`)
		a := events[agent.Action](t, log, agent.KindAction)
		if len(a) != 1 || a[0].OutputBlob == nil || len(a[0].Output) != talk.MaxText || a[0].OutputBlob.Size != size {
			t.Fatalf("%d actions", len(a))
		}
		if b, ok := log.Blob(a[0].OutputBlob.Digest); !ok || !bytes.Equal(b, bytes.Repeat([]byte("y"), size)) {
			t.Errorf("the blob has %d bytes", len(b))
		}
		m := events[agent.Message](t, log, agent.KindMessage)
		if len(m) != 1 || m[0].Blob == nil || m[0].Blob.Size != size {
			t.Errorf("%d messages", len(m))
		}
		if d.Outcome != spool.TurnOK || len(d.Answer) != talk.MaxText {
			t.Errorf("outcome is %s, the answer has %d bytes", d.Outcome, len(d.Answer))
		}
	})

	t.Run("ten_megabytes_of_nonsense", func(t *testing.T) {
		const size = 10_000_000
		d, log := scripted(t, agent.Config{Agent: agent.Codex}, printLines(codexThread)+"head -c "+fmt.Sprint(size)+" /dev/zero | tr '\\0' n; echo\n"+printLines(codexOver))
		n := events[spool.Notice](t, log, spool.KindNotice)
		var blob spool.Blob
		if len(n) != 1 || n[0].Code != talk.NoticeUnparsed || json.Unmarshal(n[0].Data, &blob) != nil || blob.Size != size {
			t.Errorf("%d notices, a blob of %d bytes", len(n), blob.Size)
		}
		if b, _ := log.Blob(blob.Digest); !bytes.Equal(b, bytes.Repeat([]byte("n"), size)) || d.Outcome != spool.TurnOK {
			t.Errorf("the blob has %d bytes, done is %+v", len(b), d)
		}
	})

	t.Run("line_beyond_the_limit", func(t *testing.T) {
		in := strings.Repeat("x", 200<<10) + "\n" + `{"a":1}` + "\n" + strings.Repeat("y", 101<<10)
		out := make(chan chunk)
		go readLines(strings.NewReader(in), 100<<10, out)
		var got []chunk
		for c := range out {
			got = append(got, c)
		}
		if len(got) != 3 || got[0].skipped != 200<<10+1 || string(got[1].line) != `{"a":1}` || got[2].skipped != 101<<10 || len(got[0].line) > MaxStderrLine {
			t.Errorf("%d chunks", len(got))
		}
	})

	t.Run("invalid_utf8", func(t *testing.T) {
		d, log := scripted(t, agent.Config{Agent: agent.Codex}, `echo '`+codexThread+`'
printf 'no json \377\376\n'
printf '{"type":"\377new"}\n'
printf '{"type":"item.completed","item":{"id":"m","type":"agent_message","text":"caf\351"}}\n'
echo '`+codexOver+`'`)
		if d.Answer != "caf\uFFFD" || d.Outcome != spool.TurnOK {
			t.Errorf("done is %+v", d)
		}
		var kept [][]byte
		for _, e := range log.All(t) {
			if e.Kind == spool.KindNotice {
				kept = append(kept, e.Bytes)
			}
		}
		if len(kept) != 2 || string(kept[0]) != "no json \xff\xfe" || string(kept[1]) != "{\"type\":\"\xffnew\"}" {
			t.Errorf("kept %q", kept)
		}
	})

	t.Run("half_a_line_at_exit", func(t *testing.T) {
		d, log := scripted(t, agent.Config{Agent: agent.Codex}, printLines(codexThread, codexSays("m", "hi"))+`printf '{"type":"turn.comp'`)
		if d.Outcome != spool.TurnOK || d.Answer != "hi" {
			t.Errorf("done is %+v", d)
		}
		var kept string
		for _, e := range log.All(t) {
			if e.Kind == spool.KindNotice {
				kept += string(e.Bytes)
			}
		}
		if kept != `{"type":"turn.comp` {
			t.Errorf("kept %q", kept)
		}
		// A whole one without its end counts.
		d, _ = scripted(t, agent.Config{Agent: agent.Claude}, printLines(claudeInit)+`printf '%s' '`+claudeOver+`'`)
		if d.Outcome != spool.TurnOK || d.Answer != "done" {
			t.Errorf("done is %+v", d)
		}
	})

	t.Run("many_events", func(t *testing.T) {
		const n = 20_000
		d, log := scripted(t, agent.Config{Agent: agent.Codex}, fmt.Sprintf(`echo '%s'
i=0; while [ $i -lt %d ]; do echo '{"type":"item.completed","item":{"id":"m'$i'","type":"agent_message","text":"'$i'"}}'; i=$((i+1)); done
echo '%s'`, codexThread, n, codexOver))
		m := events[agent.Message](t, log, agent.KindMessage)
		if len(m) != n || d.Answer != fmt.Sprint(n-1) {
			t.Fatalf("%d messages, answer %q", len(m), d.Answer)
		}
		for i := range m {
			if m[i].Text != fmt.Sprint(i) {
				t.Fatalf("message %d is %q", i, m[i].Text)
			}
		}
	})

	t.Run("never_reads_stdin", func(t *testing.T) {
		c := agent.Config{Agent: agent.Codex, Mode: agent.ModeExec, Program: fakeCLI(t,
			printLines(codexThread)+"head -c 1000000 /dev/zero | tr '\\0' ' '; echo\n"+printLines(codexSays("m", "hi"), codexOver))}
		r := converse(t, newEngine(t), c)
		if d := r.ask(strings.Repeat("x", 4<<20)); d.Outcome != spool.TurnOK || d.Answer != "hi" {
			t.Errorf("done is %+v", d)
		}
		// Not even while it lives.
		c.Program = fakeCLI(t, printLines(codexThread, codexSays("m", "hi"), codexOver)+"exec sleep 1000")
		c.ExitGraceMs = 50
		r = converse(t, newEngine(t), c)
		if d := r.ask(strings.Repeat("x", 4<<20)); d.Outcome != spool.TurnOK || d.StoppedWith != "SIGINT" {
			t.Errorf("done is %+v", d)
		}
	})

	t.Run("closes_stdout_early", func(t *testing.T) {
		dir := t.TempDir()
		d, log := scripted(t, agent.Config{Agent: agent.Codex, ExitGraceMs: 100}, printLines(codexThread, codexTurn)+
			"echo $$ > "+dir+"/pid\nexec 1>&-\nexec sleep 1000\n")
		if d.Outcome != spool.TurnCrashed || d.EndedBy != "output" || d.StoppedWith != "SIGINT" {
			t.Errorf("done is %+v", d)
		}
		if pid := pidIn(t, dir+"/pid"); alive(pid) {
			t.Errorf("process %d is left", pid)
		}
		if n := log.Notices(t); len(n) != 1 || n[0] != talk.NoticeOutputEnd {
			t.Errorf("notices are %v", n)
		}
	})

	t.Run("floods_stderr", func(t *testing.T) {
		d, _ := scripted(t, agent.Config{Agent: agent.Codex}, `i=0; while [ $i -lt 100 ]; do echo "early $i" >&2; i=$((i+1)); done
head -c 50000000 /dev/zero | tr '\0' 'e' >&2; echo >&2; echo the end >&2
`+printLines(codexThread, codexSays("m", "hi"), codexOver))
		if d.Outcome != spool.TurnOK || d.Answer != "hi" {
			t.Errorf("done is %+v", d)
		}
		if most := (StderrHead + StderrTail + 1) * (MaxStderrLine + 1); len(d.Stderr) > most || !strings.HasPrefix(d.Stderr, "early 0\nearly 1\n") || !strings.HasSuffix(d.Stderr, "\nthe end") {
			t.Errorf("standard error has %d bytes: %.100q", len(d.Stderr), d.Stderr)
		}
	})

	t.Run("never_exits_after_its_result", func(t *testing.T) {
		dir := t.TempDir()
		d, log := scripted(t, agent.Config{Agent: agent.Claude, ExitGraceMs: 100, CancelGraceMs: 50},
			"trap '' INT\necho $$ > "+dir+"/pid\n"+printLines(claudeInit, claudeOver)+"while :; do sleep 1000; done\n")
		if d.Outcome != spool.TurnOK || d.Answer != "done" || d.StoppedWith != "SIGTERM" || d.Error != "" {
			t.Errorf("done is %+v", d)
		}
		if n := log.Notices(t); len(n) == 0 || n[0] != talk.NoticeLingering {
			t.Errorf("notices are %v", n)
		}
		if pid := pidIn(t, dir+"/pid"); alive(pid) {
			t.Errorf("process %d is left", pid)
		}
	})

	t.Run("background_process_holds_the_streams", func(t *testing.T) {
		dir := t.TempDir()
		d, log := scripted(t, agent.Config{Agent: agent.Claude}, "setsid sh -c 'echo $$ > "+dir+"/pid; exec sleep 1000' &\nuntil [ -s "+dir+"/pid ]; do sleep 0.01; done\n"+printLines(claudeInit, claudeOver))
		if d.Outcome != spool.TurnOK {
			t.Errorf("done is %+v", d)
		}
		if pid := pidIn(t, dir+"/pid"); alive(pid) {
			t.Errorf("process %d is left", pid)
		}
		if n := log.Notices(t); len(n) != 1 || n[0] != talk.NoticeTreeKill {
			t.Errorf("notices are %v", n)
		}
	})

	t.Run("missing", func(t *testing.T) {
		for _, r := range byName() {
			if r.Install == "" {
				continue
			}
			_, err := tryConverse(t, newEngine(t), agent.Config{Agent: r.Name, Program: "no-such-agent"}, spool.Limits{})
			var start *spool.StartError
			var missing *NotInstalled
			if !errors.As(err, &start) || start.Reason != engine.StartNotFound || !strings.Contains(start.Hint, "npm install -g") || !errors.As(err, &missing) {
				t.Errorf("%s: %v", r.Name, err)
			}
		}
	})
}

func TestFiftyConversations(t *testing.T) {
	const conversations, each = 50, 400
	e := newEngine(t)
	program := fakeCLI(t, fmt.Sprintf(`read prompt
echo '{"type":"thread.started","thread_id":"'$prompt'"}'
i=0; while [ $i -lt %d ]; do echo '{"type":"item.completed","item":{"id":"m'$i'","type":"agent_message","text":"'$i'"}}'; i=$((i+1)); done
echo '%s'`, each, codexOver))
	before := runtime.NumGoroutine()
	var wg sync.WaitGroup
	for i := range conversations {
		r := converse(t, e, agent.Config{Agent: agent.Codex, Mode: agent.ModeExec, Program: program})
		turn := r.say(fmt.Sprintf("thread-%d", i))
		r.eof()
		wg.Go(func() {
			if o := r.s.Wait(); o.Kind != spool.Exited || o.Code != 0 {
				t.Errorf("conversation %d: %v", i, o)
			}
			log := r.log.All(t)
			if err := malformed(log); err != nil {
				t.Errorf("conversation %d: %v", i, err)
			}
			n := 0
			for _, e := range log {
				if e.Kind != agent.KindMessage {
					continue
				}
				if m := enginetest.Data[agent.Message](t, e); m.Text != fmt.Sprint(n) || e.Turn != turn {
					t.Errorf("conversation %d: message %d is %q of turn %d", i, n, m.Text, e.Turn)
				}
				n++
			}
			if n != each {
				t.Errorf("conversation %d: %d messages", i, n)
			}
		})
	}
	wg.Wait()
	t.Logf("%d goroutines before, %d after", before, runtime.NumGoroutine())
}
