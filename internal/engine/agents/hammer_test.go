package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// In whatever order clients speak, each log is whole and no process is left.
func TestHammer(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dir := t.TempDir()
	codex := fakeCLI(t, `read prompt
echo $$ >> `+dir+`/pids
echo '{"type":"thread.started","thread_id":"'${prompt#* }'"}'
echo '`+codexTurn+`'
case $prompt in
slow*) echo '{"type":"item.started","item":{"id":"c","type":"command_execution","command":"x"}}'; sleep 1000;;
tool*) setsid sh -c 'echo $$ >> `+dir+`/pids; exec sleep 1000' & sleep 1000;;
crash*) kill -9 $$;;
esac
echo '`+codexOver+`'`)
	claude := fakeCLI(t, "echo $$ >> "+dir+"/pids\n"+asking)
	e := newEngine(t)
	var wg sync.WaitGroup
	for i := range 16 {
		rng := rand.New(rand.NewPCG(seed, uint64(i)))
		c := agent.Config{Agent: agent.Codex, Mode: agent.ModeExec, Program: codex}
		if i%2 == 1 {
			c.Agent, c.Mode, c.Program = agent.Claude, agent.ModeDuplex, claude
		}
		c.CancelGraceMs, c.AskTimeoutMs, c.TurnTimeoutMs = 50, 30, 300
		c.FollowUp = []agent.FollowUp{agent.FollowQueue, agent.FollowSteer, agent.FollowInterrupt}[rng.IntN(3)]
		r := converse(t, e, c)
		wg.Go(func() { hammer(r, rng, i) })
	}
	wg.Wait()
	b, err := os.ReadFile(dir + "/pids")
	if err != nil {
		t.Fatal(err)
	}
	for word := range strings.FieldsSeq(string(b)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		if alive(pid) {
			t.Errorf("process %d is left", pid)
		}
	}
}

// hammer says and controls at random, then ends the run in one of three ways.
func hammer(r *chat, rng *rand.Rand, n int) {
	ctx := context.Background()
	prompts := []string{"quick", "slow", "tool", "crash", "plain", "die", "ask"}
	var turns []spool.Seq
	for range 12 {
		switch rng.IntN(3) {
		case 0, 1:
			// Half of the sessions are shared.
			data, err := json.Marshal(spool.Prompt{Text: fmt.Sprintf("%s %d\n", prompts[rng.IntN(len(prompts))], n/4)})
			if err != nil {
				r.t.Error(err)
				return
			}
			said, err := json.Marshal(spool.Said{Kind: spool.InputPrompt, Data: data})
			if err != nil {
				r.t.Error(err)
				return
			}
			seq, err := r.log.Append(spool.Event{Kind: spool.KindInput, Data: said})
			if err == nil {
				err = r.s.Send(ctx, spool.Input{Kind: spool.InputPrompt, Data: data, Seq: seq})
			}
			if err != nil {
				r.t.Errorf("prompt: %v", err)
				return
			}
			turns = append(turns, seq)
		case 2:
			c := spool.Control{Op: spool.ControlInterrupt}
			if len(turns) > 0 && rng.IntN(2) == 0 {
				c.Turn = turns[rng.IntN(len(turns))]
			}
			if err := r.s.Control(ctx, c); err != nil {
				r.t.Errorf("interrupt: %v", err)
			}
		}
	}
	var err error
	switch rng.IntN(3) {
	case 0:
		err = r.s.Send(ctx, spool.Input{Kind: spool.InputEOF})
	case 1:
		err = r.s.Control(ctx, spool.Control{Op: spool.ControlStop})
	case 2:
		err = r.s.Control(ctx, spool.Control{Op: spool.ControlKill})
	}
	if err != nil && !errors.Is(err, spool.ErrEnded) {
		r.t.Errorf("end: %v", err)
	}
	r.s.Wait()
	if err := malformed(r.log.All(r.t)); err != nil {
		r.t.Errorf("run %d: %v\n%s", n, err, r.log.Dump(r.t))
	}
	for _, d := range events[spool.Done](r.t, r.log, spool.KindDone) {
		if d.Outcome == "" {
			r.t.Errorf("run %d: done is %+v", n, d)
		}
	}
}
