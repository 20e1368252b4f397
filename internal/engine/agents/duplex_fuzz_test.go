package agents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/enginetest"
)

// translateDuplex runs lines through the loop of a session in duplex mode, as
// if the agent never waited for us.
func translateDuplex(t testing.TB, agent string, output []byte, x exit) []spool.Event {
	t.Helper()
	config, err := json.Marshal(Config{Agent: agent, Mode: ModeDuplex, Command: []string{"acp"}})
	if err != nil {
		t.Fatal(err)
	}
	log := enginetest.NewLog()
	spec := spool.Spec{Engine: spool.EngineAgent, Config: config, Cwd: "/srv/agents/work"}
	s, err := prepare(&spec, &Options{}, log)
	if err != nil {
		t.Fatal(err)
	}
	c := &replay{out: make(chan chunk), exit: make(chan exit, 1)}
	s.spawn = func(command) (child, error) { return c, nil }
	go s.loop()
	r := &talk{t, s, log}
	turn := r.say("Please do the task.")
	relay := make(chan chunk)
	go readLines(bytes.NewReader(output), MaxLine, relay)
	for l := range relay {
		c.out <- l
	}
	close(c.out)
	c.exit <- x
	r.eof()
	r.done(turn)
	enginetest.Wait(t, s)
	return log.All(t)
}

// duplexOutputs are the transcripts of the two-way protocols, with the ids
// that our requests have.
func duplexOutputs(t testing.TB) map[string][][]byte {
	t.Helper()
	all := make(map[string][][]byte)
	for file, agent := range map[string]string{
		"codex/appserver-turn": Codex, "codex/appserver-approval": Codex, "claude/approval-allow": Claude, "claude/control-interrupt": Claude,
		"pi-earendil/rpc-abort": Pi, "acp-gemini/prompt": ACP, "acp-gemini/permission-allow": ACP, "acp-gemini/cancel": ACP,
	} {
		b, err := os.ReadFile(transcripts + file + ".jsonl")
		if err != nil {
			t.Fatal(err)
		}
		switch agent {
		case ACP: // the recording counted from zero
			for i := 3; i >= 0; i-- {
				b = bytes.ReplaceAll(b, fmt.Appendf(nil, `"id":%d,"result"`, i), fmt.Appendf(nil, `"id":%d,"result"`, i+1))
			}
		case Pi:
			b = bytes.Replace(b, []byte(`"id":"1"`), []byte(`"id":"2"`), 1)
			b = append([]byte(`{"id":"1","type":"response","command":"get_state","success":true,"data":{"sessionId":"s1"}}`+"\n"), b...)
		}
		all[agent] = append(all[agent], b)
	}
	return all
}

// Wherever an agent dies in the middle of a protocol, its log is whole.
func TestAnyPrefixOfADuplexTranscriptIsWellFormed(t *testing.T) {
	for agent, outputs := range duplexOutputs(t) {
		for _, whole := range outputs {
			for i, c := range whole {
				if c != '\n' {
					continue
				}
				for _, cut := range []int{i, i + 1} { // with and without the end of the line
					events := translateDuplex(t, agent, whole[:cut], exit{code: 137, signal: "SIGKILL"})
					if err := malformed(events); err != nil {
						t.Fatalf("%s cut at byte %d: %v\n%s", agent, cut, err, golden(t, events))
					}
				}
			}
		}
	}
}

// noWire is a wire to nobody.
type noWire struct{}

func (noWire) write([]byte) {}
func (noWire) closeInput()  {}

// eventList is an outlet that keeps events.
type eventList struct{ events []spool.Event }

func (l *eventList) Append(e spool.Event) (spool.Seq, error) {
	e.Seq = spool.Seq(len(l.events) + 1)
	l.events = append(l.events, e)
	return e.Seq, nil
}

func (l *eventList) PutBlob(mime string, r io.Reader) (spool.Blob, error) {
	n, err := io.Copy(io.Discard, r)
	return spool.Blob{Digest: "sha256:", Size: n, MIME: mime}, err
}

// fuzzDuplex holds a protocol to it that no output breaks a log. It goes
// without the loop, so that the same input always takes the same way. Asks are
// answered now and then, and the turn is interrupted in the middle.
func fuzzDuplex(f *testing.F, name string) {
	for _, b := range duplexOutputs(f)[name] {
		f.Add(b, "allow")
	}
	f.Add([]byte("{\"type\":\"\xff\"}\nnull\n[]\n\"x\"\n{}\n{\"type\":3}\n{\"id\":1}\n{\"id\":{},\"method\":\"x\"}\n{\"method\":\"session/update\"}\n"), "deny_stop")
	open := runners()[name].duplex
	f.Fuzz(func(t *testing.T, output []byte, choice string) {
		conv, err := open(setup{config: &Config{Agent: name, Command: []string{"acp"}}, cwd: "/srv/agents/work"})
		if err != nil {
			t.Fatal(err)
		}
		log := new(eventList)
		prompt := event(spool.KindInput, spool.Said{Kind: spool.InputPrompt})
		seq, _ := log.Append(prompt)
		var keys []string
		run := &shared{out: log, agent: name, deltas: len(output)%2 == 0}
		run.asked = func(_ *turn, key string, _ spool.Seq, _ spool.Ask) { keys = append(keys, key) }
		turn := newTurn(run, seq)
		conv.opened(noWire{}, turn)
		if err := conv.prompt(spool.Prompt{Text: "x"}, turn); err != nil {
			t.Fatal(err)
		}
		lines := bytes.Split(output, []byte("\n"))
		for i, line := range lines {
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			conv.line(line, turn)
			if len(keys) > 1 {
				_ = conv.answer(keys[0], agent.Decision{Choice: choice}, turn) // it may not be open any more
				keys = keys[1:]
			}
			if i == len(lines)/2 {
				_ = conv.interrupt(turn)
				_ = conv.steer(spool.Prompt{Text: "y"}, turn)
			}
		}
		if turn.result == nil {
			conv.ended(exit{code: len(output) % 3}, turn)
		}
		if turn.result == nil {
			t.Fatal("the turn has no result")
		}
		turn.closeActions("cancelled")
		done := event(spool.KindDone, spool.Done{Outcome: turn.result.outcome, Error: turn.result.err})
		done.Turn = seq
		_, _ = log.Append(done)
		if err := malformed(log.events); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzCodexAppServer(f *testing.F) { fuzzDuplex(f, Codex) }
func FuzzClaudeDuplex(f *testing.F)   { fuzzDuplex(f, Claude) }
func FuzzPiRPC(f *testing.F)          { fuzzDuplex(f, Pi) }
func FuzzACP(f *testing.F)            { fuzzDuplex(f, ACP) }
