// Package talktest tests conversations without a process: the test says what
// the agent says.
package talktest

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
)

// SentWire keeps what is sent.
type SentWire struct{ Lines []string }

// Write implements [talk.Wire].
func (w *SentWire) Write(b []byte) { w.Lines = append(w.Lines, strings.TrimSpace(string(b))) }

// CloseInput implements [talk.Wire].
func (w *SentWire) CloseInput() {}

// Dialog is a conversation without a process: a test says what the agent says.
type Dialog struct {
	t         *testing.T
	Conv      talk.Conversation
	wire      *SentWire
	Log       *Events
	Turn      *talk.Turn
	Asks      map[string]spool.Ask
	Withdrawn []string
}

// NewDialog opens a conversation with an agent.
func NewDialog(t *testing.T, r *talk.Agent, s talk.Setup) *Dialog {
	t.Helper()
	if s.Config == nil {
		s.Config = new(agent.Config)
	}
	s.Config.Agent = r.Name
	s.Cwd = "/w"
	conv, err := r.Duplex(s)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := conv.Command(); err != nil || !c.Open || len(c.Argv) == 0 {
		t.Fatalf("command: %+v, %v", c, err)
	}
	d := &Dialog{t: t, Conv: conv, wire: new(SentWire), Log: new(Events), Asks: make(map[string]spool.Ask)}
	run := &talk.Run{Out: d.Log, Agent: r.Name, Cwd: "/w"}
	run.OnAsk = func(e spool.Event, a spool.Ask, key string) error {
		d.Asks[key] = a
		_, err := d.Log.Append(e)
		return err
	}
	run.OnWithdraw = func(_ *talk.Turn, key string) { d.Withdrawn = append(d.Withdrawn, key) }
	d.Turn = talk.NewTurn(run, 1)
	conv.Opened(d.wire, d.Turn)
	return d
}

// Prompt begins the next turn.
func (d *Dialog) Prompt(text string) {
	d.t.Helper()
	d.Turn = talk.NewTurn(d.Turn.Run, d.Turn.Seq+1)
	if err := d.Conv.Prompt(spool.Prompt{Text: text}, d.Turn); err != nil {
		d.t.Fatal(err)
	}
}

// Hears gives the conversation lines of the agent.
func (d *Dialog) Hears(lines ...string) {
	for _, l := range lines {
		d.Conv.Line([]byte(l), d.Turn)
	}
}

// Answers answers an ask, and checks that it can be answered once only.
func (d *Dialog) Answers(key string, decision agent.Decision) {
	d.t.Helper()
	if _, ok := d.Asks[key]; !ok {
		d.t.Fatalf("nothing was asked with key %s: %v", key, d.Asks)
	}
	if err := d.Conv.Answer(key, decision, d.Turn); err != nil {
		d.t.Fatal(err)
	}
	if err := d.Conv.Answer(key, decision, d.Turn); err == nil {
		d.t.Error("a second answer was taken")
	}
}

// Last checks the last thing that was sent.
func (d *Dialog) Last(want string) {
	d.t.Helper()
	got := ""
	if len(d.wire.Lines) > 0 {
		got = d.wire.Lines[len(d.wire.Lines)-1]
	}
	var g, w any
	if json.Unmarshal([]byte(got), &g) != nil || json.Unmarshal([]byte(want), &w) != nil || !cmp.Equal(g, w) {
		d.t.Errorf("sent %s\nwant %s", got, want)
	}
}

// Outcome checks the result of the turn.
func (d *Dialog) Outcome(want spool.TurnOutcome, class, text string) {
	d.t.Helper()
	r := d.Turn.Result()
	if r == nil || r.Outcome != want || r.Class != class || !strings.Contains(r.Error, text) {
		d.t.Errorf("result %+v, want %s, %s, %s", r, want, class, text)
	}
}

// Notices returns the codes of the notices in the log.
func (d *Dialog) Notices() string {
	var codes []string
	for _, e := range d.Log.List {
		if e.Kind == spool.KindNotice {
			var n spool.Notice
			if err := json.Unmarshal(e.Data, &n); err != nil {
				d.t.Fatal(err)
			}
			codes = append(codes, n.Code)
		}
	}
	return strings.Join(codes, " ")
}

// NoWire discards what is sent.
type NoWire struct{}

// Write implements [talk.Wire].
func (NoWire) Write([]byte) {}

// CloseInput implements [talk.Wire].
func (NoWire) CloseInput() {}

// Events is an outlet that keeps events.
type Events struct{ List []spool.Event }

// Append keeps an event.
func (l *Events) Append(e spool.Event) (spool.Seq, error) {
	e.Seq = spool.Seq(len(l.List) + 1)
	l.List = append(l.List, e)
	return e.Seq, nil
}

// Hold does nothing: nobody waits for the events.
func (l *Events) Hold() {}

// Release does nothing.
func (l *Events) Release() {}

// PutBlob reads a blob and keeps nothing of it.
func (l *Events) PutBlob(mime string, r io.Reader) (spool.Blob, error) {
	n, err := io.Copy(io.Discard, r)
	return spool.Blob{Digest: "sha256:", Size: n, MIME: mime}, err
}
