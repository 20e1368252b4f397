package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/bench/internal/peers"
	"github.com/spool-run/spool/internal/agenttest"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/keeper"
	"github.com/spool-run/spool/internal/modeltest"
)

// subjectByHand is codex as a person runs it.
const subjectByHand = "by hand"

// agentTimeout limits the agent measurement of one round.
const agentTimeout = 5 * time.Minute

const (
	agentPrompt = "Please do the task."
	agentAnswer = "All done."
)

// measureAgent runs the same small task in codex with a scripted model,
// directly and through Spool, in turns.
func measureAgent(ctx context.Context, b *bench) (err error) {
	ctx, cancel := context.WithTimeout(ctx, agentTimeout)
	defer cancel()
	a := &agentBench{bench: b, dir: filepath.Join(b.dir, "agents"), gate: make(chan struct{})}
	for _, dir := range []string{"home", "work"} {
		if err := os.MkdirAll(filepath.Join(a.dir, dir), 0o700); err != nil {
			return err
		}
	}
	if a.model, err = modeltest.New(a); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.model.Err(), a.model.Close()) }()
	if a.env, err = agenttest.WriteHome(filepath.Join(a.dir, "home"), agenttest.Codex, a.model); err != nil {
		return err
	}
	if a.codex, err = agenttest.Install(agenttest.Codex); err != nil {
		return err
	}
	if a.bin, err = filepath.Abs(b.spool); err != nil {
		return err
	}
	state := filepath.Join(a.dir, "state")
	a.kept, err = keeper.Open(keeper.Options{
		Dir: state, Build: "bench", Host: host.Options{Dir: state},
		Keeper: func(dir string) *exec.Cmd {
			return exec.Command(a.bin, "keeper-role", "-state", dir, "-build", "bench")
		},
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.kept.Close()) }()
	if err := a.turns(ctx); err != nil {
		return err
	}
	return a.memory(ctx, state)
}

// agentBench is the state of the agent measurement.
type agentBench struct {
	*bench
	dir   string
	model *modeltest.Model
	env   map[string]string
	codex string
	bin   string
	kept  *keeper.Backend
	gate  chan struct{} // blocks conversations whose prompt contains waiting
}

// waiting is in the prompts of conversations that wait for the gate.
const waiting = "Wait for it."

// Step implements [modeltest.Script]: a command and an answer.
func (a *agentBench) Step(r *modeltest.Request) (modeltest.Step, error) {
	switch {
	case len(r.Outputs()) == 0:
		return modeltest.Shell("echo hi"), nil
	case strings.Contains(r.Prompt(), waiting):
		return modeltest.Say(agentAnswer).After(a.gate), nil
	}
	return modeltest.Say(agentAnswer), nil
}

// Left implements [modeltest.Script].
func (a *agentBench) Left() error { return nil }

// turns measures whole conversations.
func (a *agentBench) turns(ctx context.Context) error {
	ways := []struct {
		subject, metric string
		run             func(context.Context) error
	}{
		{subjectByHand, "agent.turn", a.byHand},
		{subjectSpool, "agent.turn", a.handle},
		{subjectSpool, "agent.command", a.command},
	}
	for i := range a.pick(6, 5) {
		for _, w := range ways {
			began := time.Now()
			if err := w.run(ctx); err != nil {
				return fmt.Errorf("%s, %s: %w", w.subject, w.metric, err)
			}
			if i > 0 { // the first conversation warms the caches
				a.addTime(w.subject, w.metric, time.Since(began))
			}
		}
	}
	return nil
}

// noSandbox is codex's sandbox in all measurements: every machine supports it.
const noSandbox = "danger-full-access"

// byHand runs codex and reads its answer.
func (a *agentBench) byHand(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, a.codex, "-c", "notify=[]", "--sandbox", noSandbox, "exec", "--json", "--skip-git-repo-check", "--color=never", "-")
	cmd.Dir = filepath.Join(a.dir, "work")
	cmd.Env = a.environ()
	cmd.Stdin = strings.NewReader(agentPrompt)
	return answered(cmd)
}

// command runs spool agent and reads its answer.
func (a *agentBench) command(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, a.bin, "agent", "codex", "--mode", "exec", "--sandbox", noSandbox, agentPrompt)
	cmd.Dir = filepath.Join(a.dir, "work")
	cmd.Env = append(a.environ(), "SPOOL_STATE="+filepath.Join(a.dir, "command"))
	return answered(cmd)
}

func answered(cmd *exec.Cmd) error {
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%w: %s", err, &stderr)
	}
	if !bytes.Contains(out, []byte(agentAnswer)) {
		return fmt.Errorf("no answer in %q", out)
	}
	return nil
}

func (a *agentBench) environ() []string {
	var env []string
	for name, value := range a.env {
		env = append(env, name+"="+value)
	}
	return env
}

// start starts a conversation through the keeper.
func (a *agentBench) start(ctx context.Context, prompt string) (*spool.Run, *spool.Turn, error) {
	config, err := json.Marshal(agent.Config{Agent: agent.Codex, Mode: agent.ModeExec, Sandbox: noSandbox})
	if err != nil {
		return nil, nil, err
	}
	run, err := spool.Start(ctx, a.kept, spool.Spec{
		Engine: agent.Engine, Cwd: filepath.Join(a.dir, "work"), Env: maps.Clone(a.env), Config: config,
	})
	if err != nil {
		return nil, nil, err
	}
	turn, err := run.Prompt(ctx, "", spool.Prompt{Text: prompt})
	if err != nil {
		return nil, nil, err
	}
	return run, turn, run.Stdin(ctx).Close()
}

// handle runs the task of byHand through a keeper.
func (a *agentBench) handle(ctx context.Context) error {
	run, turn, err := a.start(ctx, agentPrompt)
	if err != nil {
		return err
	}
	return finished(ctx, run, turn)
}

// finished waits for the end of a conversation and its run.
func finished(ctx context.Context, run *spool.Run, turn *spool.Turn) error {
	done, err := turn.Wait(ctx)
	if err != nil {
		return err
	}
	if done.Answer != agentAnswer {
		return fmt.Errorf("answer %q: %s %s", done.Answer, done.Outcome, done.Error)
	}
	_, err = run.Wait(ctx)
	return err
}

// agentsAtOnce is the number of live conversations in the memory measurement.
const agentsAtOnce = 8

// memory measures the keeper while conversations wait for the model.
func (a *agentBench) memory(ctx context.Context, state string) error {
	var wg sync.WaitGroup
	errs := make(chan error, agentsAtOnce)
	sizes := make(map[int]int64)
	for n := 1; n <= agentsAtOnce; n++ {
		run, turn, err := a.start(ctx, waiting)
		if err != nil {
			return err
		}
		if err := ranCommand(ctx, turn); err != nil {
			return err
		}
		if sizes[n], err = keeperRSS(state); err != nil {
			return err
		}
		wg.Go(func() { errs <- finished(ctx, run, turn) })
	}
	close(a.gate)
	wg.Wait()
	close(errs)
	for err := range errs {
		if err != nil {
			return err
		}
	}
	a.add(subjectSpool, "agent.rss", float64(sizes[1]))
	a.add(subjectSpool, "agent.rss.more", float64(sizes[agentsAtOnce]-sizes[1])/(agentsAtOnce-1))
	return nil
}

// ranCommand waits until the command of a conversation has run.
func ranCommand(ctx context.Context, turn *spool.Turn) error {
	for e, err := range turn.Events(ctx) {
		if err != nil {
			return err
		}
		var act agent.Action
		if e.Kind == agent.KindAction && json.Unmarshal(e.Data, &act) == nil &&
			act.Kind == agent.ActionCommand && act.Phase == agent.ActionCompleted {
			return nil
		}
	}
	return io.ErrUnexpectedEOF
}

// keeperRSS returns the resident memory of the only keeper of a state
// directory.
func keeperRSS(dir string) (int64, error) {
	owners, err := host.Owners(dir)
	if err != nil || len(owners) != 1 {
		return 0, fmt.Errorf("find the keeper: found %d: %w", len(owners), err)
	}
	return peers.RSS(owners[0].Pid)
}
