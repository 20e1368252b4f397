package agents

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/internal/fifotest"
)

// paced is a fake codex that tells when it began, and waits to be let on.
type paced struct {
	*chat
	t     *testing.T
	began *fifotest.FIFO
	goOn  *fifotest.FIFO
	turn  spool.Seq
}

// pacedDir is where the fakes of one test keep a diary together.
type pacedDir struct {
	dir     string
	engines []*Engine // used in turn: as many processes as far as locks can tell
	n       int
}

func newPacedDir(t *testing.T, engines int) *pacedDir {
	t.Helper()
	d := &pacedDir{dir: t.TempDir()}
	state := t.TempDir()
	for range engines {
		e, err := New(Options{Dir: state})
		if runtime.GOOS != "linux" && errors.Is(err, spool.ErrUnsupported) {
			t.Skip(err)
		}
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Close(); err != nil {
				t.Errorf("close engine: %v", err)
			}
		})
		d.engines = append(d.engines, e)
	}
	return d
}

// start begins a run whose agent reports the session, and gives it a prompt.
func (d *pacedDir) start(t *testing.T, resume, session, more string) *paced {
	t.Helper()
	d.n++
	name := fmt.Sprint(d.n)
	p := &paced{t: t, began: fifotest.New(t, d.dir, "began"+name), goOn: fifotest.New(t, d.dir, "go"+name)}
	script := fmt.Sprintf(`
echo begin %[1]s >> %[2]s/diary
echo > %[3]s
cat > /dev/null
echo '{"type":"thread.started","thread_id":"%[5]s"}'
%[6]s
read _ < %[4]s
echo '{"type":"item.completed","item":{"id":"i","type":"agent_message","text":"answer %[1]s"}}'
echo '{"type":"turn.completed","usage":{"input_tokens":1,"output_tokens":1}}'
echo end %[1]s >> %[2]s/diary
`, name, d.dir, p.began.Path, p.goOn.Path, session, more)
	e := d.engines[d.n%len(d.engines)]
	p.chat = converse(t, e, agent.Config{Agent: agent.Codex, Mode: agent.ModeExec, Resume: resume, Program: fakeCLI(t, script)})
	p.turn = p.say("go")
	p.eof()
	return p
}

func (p *paced) waitBegan() {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), enginetest.Patience)
	defer cancel()
	if err := p.began.Wait(ctx); err != nil {
		p.t.Fatalf("wait for the agent to begin: %v", err)
	}
}

func (p *paced) finish() spool.Done {
	p.t.Helper()
	if err := p.goOn.Release(); err != nil {
		p.t.Fatal(err)
	}
	d := p.done(p.turn)
	enginetest.Wait(p.t, p.s)
	wellFormed(p.t, p.log.All(p.t))
	if d.Outcome != spool.TurnOK {
		p.t.Errorf("done: %+v", d)
	}
	return d
}

// waitsForSession returns when the run has said that it waits for another.
func (p *paced) waitsForSession() {
	p.t.Helper()
	p.log.Until(p.t, "the notice that it waits", func(e spool.Event) bool {
		return e.Kind == spool.KindNotice && enginetest.Data[spool.Notice](p.t, e).Code == talk.NoticeWaiting
	})
}

func (d *pacedDir) diary(t *testing.T) string {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(d.dir, "diary"))
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(strings.Fields(string(b)), " ")
}

func (p *paced) started() bool {
	p.t.Helper()
	for _, k := range kinds(p.t, p.log) {
		if k == spool.KindStarted {
			return true
		}
	}
	return false
}

func TestSessions(t *testing.T) {
	for _, engines := range []int{1, 2} {
		t.Run(map[int]string{1: "in_one_engine", 2: "across_engines"}[engines], func(t *testing.T) {
			t.Run("run_serializes_same_session", func(t *testing.T) {
				d := newPacedDir(t, engines)
				first := d.start(t, "s1", "s1", "")
				first.waitBegan()
				second := d.start(t, "s1", "s1", "")
				second.waitsForSession()
				if got := d.diary(t); got != "begin 1" {
					t.Errorf("while the first works: %s", got)
				}
				first.finish()
				second.waitBegan()
				second.finish()
				if got := d.diary(t); got != "begin 1 end 1 begin 2 end 2" {
					t.Errorf("in the end: %s", got)
				}
			})
			t.Run("run_allows_parallel_new_sessions", func(t *testing.T) {
				d := newPacedDir(t, engines)
				first, second := d.start(t, "", "s1", ""), d.start(t, "", "s2", "")
				first.until(spool.KindStarted)
				second.until(spool.KindStarted)
				second.finish()
				first.finish()
			})
			t.Run("run_allows_parallel_different_sessions", func(t *testing.T) {
				d := newPacedDir(t, engines)
				first, second := d.start(t, "s1", "s1", ""), d.start(t, "s2", "s2", "")
				first.until(spool.KindStarted)
				second.until(spool.KindStarted)
				second.finish()
				first.finish()
			})
			t.Run("run_serializes_new_session_after_session_is_known", func(t *testing.T) {
				d := newPacedDir(t, engines)
				first := d.start(t, "", "new", "")
				first.until(spool.KindStarted)
				second := d.start(t, "new", "new", "")
				second.waitsForSession()
				if got := d.diary(t); got != "begin 1" {
					t.Errorf("while the first works: %s", got)
				}
				first.finish()
				second.waitBegan()
				second.until(spool.KindStarted)
				second.finish()
				if got := d.diary(t); got != "begin 1 end 1 begin 2 end 2" {
					t.Errorf("in the end: %s", got)
				}
			})
			t.Run("run_serializes_two_new_sessions_same_thread", func(t *testing.T) {
				d := newPacedDir(t, engines)
				first := d.start(t, "", "same", "")
				first.until(spool.KindStarted)
				// The second says far more than a pipe holds, and then that it
				// could: it is read although nothing of it can be seen.
				drained := fifotest.New(t, d.dir, "drained")
				second := d.start(t, "", "same", fmt.Sprintf(`
i=0
while [ $i -lt 2000 ]; do
	echo '{"type":"item.completed","item":{"id":"r'$i'","type":"reasoning","text":"%s"}}'
	i=$((i+1))
done
echo > %s`, strings.Repeat("x", 1000), drained.Path))
				ctx, cancel := context.WithTimeout(t.Context(), enginetest.Patience)
				defer cancel()
				if err := drained.Wait(ctx); err != nil {
					t.Fatalf("wait until it was read: %v", err)
				}
				second.waitsForSession()
				if second.started() {
					t.Error("both have started")
				}
				first.finish()
				second.until(spool.KindStarted)
				second.finish()
				if n := len(events[agent.Reasoning](t, second.log, agent.KindReasoning)); n != 2000 {
					t.Errorf("%d of 2000 events came through", n)
				}
			})
		})
	}
}

// A run that waits for a session can be stopped, and the next in line is not
// held up by it.
func TestWaitingForASessionCanBeStopped(t *testing.T) {
	d := newPacedDir(t, 2)
	first := d.start(t, "s1", "s1", "")
	first.waitBegan()
	second := d.start(t, "s1", "s1", "")
	second.waitsForSession()
	third := d.start(t, "s1", "s1", "")
	third.waitsForSession()
	second.control(spool.Control{Op: spool.ControlStop})
	if o := second.done(second.turn); o.Outcome != spool.TurnCancelled {
		t.Errorf("stopped: %+v", o)
	}
	enginetest.Wait(t, second.s)
	first.finish()
	third.waitBegan()
	third.finish()
	if got := d.diary(t); got != "begin 1 end 1 begin 3 end 3" {
		t.Errorf("in the end: %s", got)
	}
}

// A run that dies gives its session back.
func TestSessionIsFreeAfterACrash(t *testing.T) {
	d := newPacedDir(t, 2)
	first := d.start(t, "s1", "s1", "kill -9 $$")
	if o := first.done(first.turn); o.Outcome != spool.TurnCrashed || o.Signal != "SIGKILL" {
		t.Errorf("killed: %+v", o)
	}
	second := d.start(t, "s1", "s1", "")
	second.waitBegan()
	second.finish()
}
