package agents

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/engine/agents/talk/talktest"
	"github.com/spool-run/spool/internal/engine/enginetest"
)

// translateDuplex runs lines through the loop of a session in duplex mode, as
// if the agent never waited for us.
func translateDuplex(t testing.TB, name string, output []byte, x talk.Exit) []spool.Event {
	t.Helper()
	config, err := json.Marshal(agent.Config{Agent: name, Mode: agent.ModeDuplex, Command: []string{"acp"}})
	if err != nil {
		t.Fatal(err)
	}
	log := enginetest.NewLog()
	spec := spool.Spec{Engine: agent.Engine, Config: config, Cwd: "/srv/agents/work"}
	s, err := prepare(&spec, &Options{}, log)
	if err != nil {
		t.Fatal(err)
	}
	c := &replay{out: make(chan chunk), exit: make(chan talk.Exit, 1)}
	s.spawn = func(talk.Command) (child, error) { return c, nil }
	go s.loop()
	r := &chat{t, s, log}
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
	for file, name := range map[string]string{
		"codex/appserver-turn": agent.Codex, "codex/appserver-approval": agent.Codex, "claude/approval-allow": agent.Claude, "claude/control-interrupt": agent.Claude,
		"pi-earendil/rpc-abort": agent.Pi, "acp-gemini/prompt": agent.ACP, "acp-gemini/permission-allow": agent.ACP, "acp-gemini/cancel": agent.ACP,
	} {
		b, err := os.ReadFile(transcripts + file + ".jsonl")
		if err != nil {
			t.Fatal(err)
		}
		switch name {
		case agent.ACP: // the recording counted from zero
			for i := 3; i >= 0; i-- {
				b = bytes.ReplaceAll(b, fmt.Appendf(nil, `"id":%d,"result"`, i), fmt.Appendf(nil, `"id":%d,"result"`, i+1))
			}
		case agent.Pi:
			b = bytes.Replace(b, []byte(`"id":"1"`), []byte(`"id":"2"`), 1)
			b = append([]byte(`{"id":"1","type":"response","command":"get_state","success":true,"data":{"sessionId":"s1"}}`+"\n"), b...)
		}
		all[name] = append(all[name], b)
	}
	return all
}

// Wherever an agent dies in the middle of a protocol, its log is whole.
func TestAnyPrefixOfADuplexTranscriptIsWellFormed(t *testing.T) {
	for name, outputs := range duplexOutputs(t) {
		for _, whole := range outputs {
			for i, c := range whole {
				if c != '\n' {
					continue
				}
				for _, cut := range []int{i, i + 1} { // with and without the end of the line
					events := translateDuplex(t, name, whole[:cut], talk.Exit{Code: 137, Signal: "SIGKILL"})
					if err := malformed(events); err != nil {
						t.Fatalf("%s cut at byte %d: %v\n%s", name, cut, err, golden(t, events))
					}
				}
			}
		}
	}
}

// fuzzDuplex holds a protocol to it that no output breaks a log. It goes
// without the loop, so that the same input always takes the same way. Asks are
// answered now and then, and the turn is interrupted in the middle.
func fuzzDuplex(f *testing.F, name string) {
	for _, b := range duplexOutputs(f)[name] {
		f.Add(b, "allow")
	}
	f.Add([]byte("{\"type\":\"\xff\"}\nnull\n[]\n\"x\"\n{}\n{\"type\":3}\n{\"id\":1}\n{\"id\":{},\"method\":\"x\"}\n{\"method\":\"session/update\"}\n"), "deny_stop")
	open := byName()[name].Duplex
	f.Fuzz(func(t *testing.T, output []byte, choice string) {
		conv, err := open(talk.Setup{Config: &agent.Config{Agent: name, Command: []string{"acp"}}, Cwd: "/srv/agents/work"})
		if err != nil {
			t.Fatal(err)
		}
		log := new(talktest.Events)
		prompt := event(spool.KindInput, spool.Said{Kind: spool.InputPrompt})
		seq, _ := log.Append(prompt)
		var keys []string
		run := &talk.Run{Out: log, Agent: name, Deltas: len(output)%2 == 0}
		run.OnAsk = func(e spool.Event, _ spool.Ask, key string) error {
			keys = append(keys, key)
			_, err := log.Append(e)
			return err
		}
		turn := talk.NewTurn(run, seq)
		conv.Opened(talktest.NoWire{}, turn)
		if err := conv.Prompt(spool.Prompt{Text: "x"}, turn); err != nil {
			t.Fatal(err)
		}
		lines := bytes.Split(output, []byte("\n"))
		for i, line := range lines {
			if len(bytes.TrimSpace(line)) == 0 {
				continue
			}
			conv.Line(line, turn)
			if len(keys) > 1 {
				_ = conv.Answer(keys[0], agent.Decision{Choice: choice}, turn) // it may not be open any more
				keys = keys[1:]
			}
			if i == len(lines)/2 {
				_ = conv.Interrupt(turn)
				_ = conv.Steer(spool.Prompt{Text: "y"}, turn)
			}
		}
		if turn.Result() == nil {
			conv.Ended(talk.Exit{Code: len(output) % 3}, turn)
		}
		if turn.Result() == nil {
			t.Fatal("the turn has no result")
		}
		turn.CloseActions("cancelled")
		done := event(spool.KindDone, spool.Done{Outcome: turn.Result().Outcome, Error: turn.Result().Error})
		done.Turn = seq
		_, _ = log.Append(done)
		if err := malformed(log.List); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzCodexAppServer(f *testing.F) { fuzzDuplex(f, agent.Codex) }
func FuzzClaudeDuplex(f *testing.F)   { fuzzDuplex(f, agent.Claude) }
func FuzzPiRPC(f *testing.F)          { fuzzDuplex(f, agent.Pi) }
func FuzzACP(f *testing.F)            { fuzzDuplex(f, agent.ACP) }

func event(kind spool.Kind, payload any) spool.Event {
	data, err := json.Marshal(payload)
	if err != nil { // plain fields always encode
		data = nil
	}
	return spool.Event{Kind: kind, Data: data}
}
