package cli

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/user"
	"strconv"
	"strings"
	"sync"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// agentAsker answers the asks of an agent. It prompts the user on the terminal,
// or denies if there is no terminal.
type agentAsker struct {
	run      *spool.Run
	narrator *narrator // may be nil
	terminal *os.File  // nil if there is none
	wait     bool      // leave asks to other clients
	by       string

	mu    sync.Mutex
	open  map[spool.Seq]openAsk
	turn  chan struct{} // held by the ask that is on the terminal
	lines chan string   // lines read from the terminal
	once  sync.Once     // starts read
	work  sync.WaitGroup
}

// noAnswer is the message of a denial without a user.
const noAnswer = "No user is available to answer."

// openAsk is an ask without an answer.
type openAsk struct {
	turn   spool.Seq
	cancel context.CancelFunc
}

func newAsker(a *app, o *agentOptions, run *spool.Run, n *narrator) *agentAsker {
	k := &agentAsker{run: run, narrator: n, wait: o.asks == asksWait, by: "spool agent", open: make(map[spool.Seq]openAsk),
		turn: make(chan struct{}, 1), lines: make(chan string)}
	if o.asks != asksTerminal {
		return k
	}
	// With the prompt on stdin, the terminal is still /dev/tty.
	k.terminal = a.stdin
	if !isTerminal(a.stdin) {
		tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
		if err != nil {
			k.terminal = nil
			return k
		}
		k.terminal = tty // stays open: read may wait in it
	}
	if !foreground(k.terminal) {
		k.terminal = nil // the kernel stops a background job that reads
		return k
	}
	k.by = "terminal"
	if u, err := user.Current(); err == nil {
		k.by = u.Username
	}
	return k
}

// note handles an event: it may open an ask or close open ones.
func (k *agentAsker) note(ctx context.Context, e *spool.Event) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for seq, a := range k.open {
		if e.ClosesAsk(seq, a.turn) {
			a.cancel()
			delete(k.open, seq)
		}
	}
	var q spool.Ask
	if !e.OpensAsk() || k.wait || !decode(e, &q) {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	k.open[e.Seq] = openAsk{e.Turn, cancel}
	seq := e.Seq
	k.work.Go(func() {
		defer cancel()
		k.answer(ctx, seq, &q)
	})
}

// close cancels the open asks and waits for their goroutines.
func (k *agentAsker) close() {
	k.mu.Lock()
	for _, a := range k.open {
		a.cancel()
	}
	k.mu.Unlock()
	k.work.Wait()
}

// answer prompts for the answer to an ask and sends it.
func (k *agentAsker) answer(ctx context.Context, seq spool.Seq, q *spool.Ask) {
	d := agent.Decision{Choice: agent.Deny, Message: noAnswer}
	if k.terminal != nil {
		select {
		case k.turn <- struct{}{}:
		case <-ctx.Done():
			return
		}
		var err error
		d, err = k.prompt(ctx, q)
		<-k.turn
		if err != nil {
			return // the ask was closed
		}
	}
	data, err := json.Marshal(d)
	if err == nil {
		err = k.run.Answer(ctx, spool.Answer{Ask: seq, Data: data, By: k.by}, q.Secret)
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, spool.ErrNotAsked) && !errors.Is(err, spool.ErrEnded) && k.narrator != nil {
		k.narrator.say(fmt.Sprintf("could not send the answer: %v", err))
	}
}

// keys are the choices of an approval and their keys.
var keys = []struct{ key, choice, label string }{
	{"y", agent.Allow, "yes"},
	{"a", agent.AllowSession, "yes, for the rest of the session"},
	{"n", agent.Deny, "no"},
	{"s", agent.DenyStop, "no, and end the turn"},
}

// prompt shows an ask on the terminal and reads lines until one is an answer.
func (k *agentAsker) prompt(ctx context.Context, q *spool.Ask) (agent.Decision, error) {
	if k.narrator != nil {
		k.narrator.pause(true)
		defer k.narrator.pause(false)
	}
	discardTyped(k.terminal) // keys typed before the prompt are not its answer
	if q.Secret {
		defer hideTyped(k.terminal)()
	}
	k.once.Do(func() { go k.read() })
	var several agent.Questions
	if q.Kind != agent.AskQuestion || json.Unmarshal(q.Data, &several) != nil || len(several.Questions) < 2 {
		return k.promptOne(ctx, q)
	}
	all := agent.Decision{Answers: make(map[string]string)}
	for _, one := range several.Questions {
		d, err := k.promptOne(ctx, &spool.Ask{Kind: agent.AskQuestion, Prompt: one.Text, Options: one.Options})
		if err != nil || d.Choice == agent.Deny {
			return d, err
		}
		all.Answers[one.ID] = d.Choice
	}
	return all, nil
}

// promptOne shows one question and reads its answer.
func (k *agentAsker) promptOne(ctx context.Context, q *spool.Ask) (agent.Decision, error) {
	k.show(k.question(q))
	for {
		k.show("answer: ")
		select {
		case <-ctx.Done():
			k.show("\nnot needed any more\n")
			return agent.Decision{}, ctx.Err()
		case line, ok := <-k.lines:
			if !ok {
				return agent.Decision{Choice: agent.Deny, Message: noAnswer}, nil
			}
			if d, ok := parseAnswer(q, line); ok {
				return d, nil
			}
		}
	}
}

// show writes to the terminal. It drops errors: reading from a terminal that is
// gone fails too.
func (k *agentAsker) show(text string) { _, _ = io.WriteString(k.terminal, text) }

// read reads lines until the terminal closes. The read cannot be cancelled; the
// goroutine ends with the process.
func (k *agentAsker) read() {
	defer close(k.lines)
	in := bufio.NewScanner(k.terminal)
	for in.Scan() {
		k.lines <- strings.TrimSpace(in.Text())
	}
}

// question returns the text of an ask for the terminal.
func (k *agentAsker) question(q *spool.Ask) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n? %s\n", screenText(cmp.Or(q.Prompt, q.Name, q.Kind)))
	if q.Kind == agent.AskApproval {
		var p agent.Approval
		if json.Unmarshal(q.Data, &p) == nil {
			if p.Command != "" && !strings.Contains(q.Prompt, p.Command) {
				fmt.Fprintf(&b, "  $ %s\n", strings.ReplaceAll(screenText(p.Command), "\n", "\n    "))
			}
			for _, path := range p.Paths {
				fmt.Fprintf(&b, "  file %s\n", plain(path))
			}
			if p.Reason != "" {
				fmt.Fprintf(&b, "  because: %s\n", oneLine(p.Reason, 300))
			}
			if p.Cwd != "" {
				fmt.Fprintf(&b, "  in %s\n", plain(p.Cwd))
			}
		}
		for _, o := range keys {
			fmt.Fprintf(&b, "  [%s] %s\n", o.key, o.label)
		}
	}
	for i, o := range q.Options {
		fmt.Fprintf(&b, "  [%d] %s\n", i+1, oneLine(cmp.Or(o.Label, o.ID), 200))
	}
	return b.String()
}

// parseAnswer returns the decision that a line means.
func parseAnswer(q *spool.Ask, line string) (agent.Decision, bool) {
	if i, err := strconv.Atoi(line); err == nil && i >= 1 && i <= len(q.Options) {
		return agent.Decision{Choice: q.Options[i-1].ID}, true
	}
	if q.Kind == agent.AskApproval {
		for _, o := range keys {
			if strings.EqualFold(line, o.key) || strings.EqualFold(line, o.label) || line == o.choice {
				return agent.Decision{Choice: o.choice}, true
			}
		}
		return agent.Decision{}, false
	}
	return agent.Decision{Choice: line}, line != ""
}
