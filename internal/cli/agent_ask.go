package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/user"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/narrate"
	"github.com/spool-run/spool/internal/visible"
)

// agentAsker answers the asks of an agent. It prompts the user on the terminal,
// or denies if there is no terminal.
type agentAsker struct {
	run      *spool.Run
	narrator *narrator // may be nil
	console  *console  // nil if there is no terminal
	wait     bool      // leave asks to other clients
	opened   *os.File  // the terminal, if this asker opened it
	by       string

	mu   sync.Mutex
	open map[spool.Seq]openAsk
	turn chan struct{} // held by the ask that is on the terminal
	work sync.WaitGroup
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
		turn: make(chan struct{}, 1)}
	if o.asks != asksTerminal {
		return k
	}
	// With the prompt on stdin, the terminal is still /dev/tty.
	terminal := a.stdin
	if !isTerminal(a.stdin) {
		tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
		if err != nil {
			return k
		}
		k.opened, terminal = tty, tty
	}
	if !foreground(terminal) {
		return k // the kernel stops a background job that reads
	}
	k.console = &console{terminal: terminal}
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
	if !e.OpensAsk() || k.wait || json.Unmarshal(e.Data, &q) != nil {
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
	if k.opened != nil {
		_ = k.opened.Close() // nothing is written any more
	}
}

// answer prompts for the answer to an ask and sends it.
func (k *agentAsker) answer(ctx context.Context, seq spool.Seq, q *spool.Ask) {
	d, retyped := agent.Decision{Choice: agent.Deny, Message: noAnswer}, ""
	if k.console != nil {
		select {
		case k.turn <- struct{}{}:
		case <-ctx.Done():
			return
		}
		var err error
		d, retyped, err = k.decide(ctx, q)
		<-k.turn
		if err != nil {
			return // the ask was closed
		}
	}
	data, err := json.Marshal(d)
	if err == nil {
		err = k.run.Answer(ctx, spool.Answer{Ask: seq, Data: data, By: k.by, Retype: retyped}, q.Secret)
	}
	if err != nil && ctx.Err() == nil && !errors.Is(err, spool.ErrNotAsked) && !errors.Is(err, spool.ErrEnded) && k.narrator != nil {
		k.narrator.say(fmt.Sprintf("could not send the answer: %v", err))
	}
}

// approvalKeys are the choices of an approval, their keys, and the kind of option
// that an agent must offer for a choice; empty if it is always possible.
var approvalKeys = []struct{ key, choice, label, needs string }{
	{"y", agent.Allow, "yes", ""},
	{"a", agent.AllowSession, "always in this session", "allow_always"},
	{"n", agent.Deny, "no", ""},
	{"s", agent.DenyStop, "no, and end the turn", ""},
}

// answerKey is a key that answers an ask.
type answerKey struct {
	key, label string
	decision   agent.Decision
}

// answerKeys returns the keys that answer an ask.
func answerKeys(q *spool.Ask) []answerKey {
	var keys []answerKey
	named := make(map[string]bool) // options that have a letter
	if q.Kind == agent.AskApproval {
		for _, k := range approvalKeys {
			offered := func(o spool.AskOption) bool { return o.Kind == k.needs }
			if k.needs != "" && len(q.Options) > 0 && !slices.ContainsFunc(q.Options, offered) {
				continue
			}
			keys = append(keys, answerKey{k.key, k.label, agent.Decision{Choice: k.choice}})
		}
		// The first option of each kind has a letter; a refusal has two.
		for _, kinds := range [][]string{{"allow_once"}, {"allow_always"}, {"reject_once", "reject_always"}, {"reject_once", "reject_always"}} {
			i := slices.IndexFunc(q.Options, func(o spool.AskOption) bool { return slices.Contains(kinds, o.Kind) && !named[o.ID] })
			if i >= 0 {
				named[q.Options[i].ID] = true
			}
		}
	}
	number := 0
	for _, o := range q.Options {
		if named[o.ID] || number == 9 {
			continue
		}
		number++
		keys = append(keys, answerKey{strconv.Itoa(number), visible.Short(cmp.Or(o.Label, o.ID), 200), agent.Decision{Choice: o.ID}})
	}
	return keys
}

// textKey is the key with which a user types an answer of several characters.
const textKey = "t"

// decide prompts until there is an answer that counts. A person types
// again what is dangerous to allow it.
func (k *agentAsker) decide(ctx context.Context, q *spool.Ask) (d agent.Decision, retyped string, err error) {
	for {
		if d, err = k.prompt(ctx, q); err != nil {
			return d, "", err
		}
		data, err := json.Marshal(d)
		if err != nil {
			return d, "", err
		}
		if q.CheckRetype(&spool.Answer{Data: data}) == nil {
			return d, "", nil
		}
		typed, err := k.promptLine(ctx, &spool.Ask{}, "This is dangerous. To allow it, type it again.\n")
		if err != nil {
			return d, "", err
		}
		if q.CheckRetype(&spool.Answer{Data: data, Retype: typed.Choice}) == nil {
			return d, typed.Choice, nil
		}
	}
}

// prompt shows an ask on the terminal and reads its answer.
func (k *agentAsker) prompt(ctx context.Context, q *spool.Ask) (agent.Decision, error) {
	if k.narrator != nil {
		k.narrator.pause(true)
		defer k.narrator.pause(false)
	}
	var several agent.Questions
	if q.Kind != agent.AskQuestion || json.Unmarshal(q.Data, &several) != nil || len(several.Questions) < 2 {
		return k.promptOne(ctx, q)
	}
	all := agent.Decision{Answers: make(map[string]string)}
	for _, one := range several.Questions {
		d, err := k.promptOne(ctx, &spool.Ask{Kind: agent.AskQuestion, Prompt: one.Text, Options: one.Options, Secret: one.Secret})
		if err != nil || d.Choice == agent.Deny {
			return d, err
		}
		all.Answers[one.ID] = d.Choice
	}
	return all, nil
}

// promptOne shows one question and reads its answer.
func (k *agentAsker) promptOne(ctx context.Context, q *spool.Ask) (agent.Decision, error) {
	question := "\n" + k.question(q) + "\n"
	keys := answerKeys(q)
	if len(keys) == 0 {
		return k.promptLine(ctx, q, question)
	}
	for _, key := range keys {
		question += fmt.Sprintf("  [%s] %s\n", key.key, key.label)
	}
	chosen := q.Kind == agent.AskApproval || q.Kind == askNetwork // not typed
	if !chosen {
		question += "  [" + textKey + "] type another answer\n"
	}
	typed, err := k.console.begin(typeKey, question+"press a key: ")
	if err != nil {
		return agent.Decision{Choice: agent.Deny, Message: noAnswer}, nil
	}
	for {
		select {
		case <-ctx.Done():
			k.console.end("(no longer asked)\n")
			return agent.Decision{}, ctx.Err()
		case text, ok := <-typed:
			if !ok {
				k.console.end("\n")
				return agent.Decision{Choice: agent.Deny, Message: noAnswer}, nil
			}
			if pressedKey(text) == textKey && !chosen {
				k.console.end(textKey + "\n")
				return k.promptLine(ctx, q, "")
			}
			if key, ok := findKey(keys, text); ok {
				k.console.end(key.label + "\n")
				return key.decision, nil
			}
			k.console.show("\a")
			if strings.HasPrefix(text, "\x1b") {
				skipSequence(typed)
			}
		}
	}
}

// sequenceTime is how long the rest of what an arrow or another special key sends
// may take to arrive.
const sequenceTime = 100 * time.Millisecond

// skipSequence drops the rest of what a special key sends, which may arrive in
// parts: its last letter must not answer.
func skipSequence(typed <-chan string) {
	over := time.After(sequenceTime)
	for {
		select {
		case _, ok := <-typed:
			if !ok {
				return
			}
		case <-over:
			return
		}
	}
}

// findKey returns the key that was pressed, if it is one of these.
func findKey(keys []answerKey, typed string) (answerKey, bool) {
	i := slices.IndexFunc(keys, func(k answerKey) bool { return k.key == pressedKey(typed) })
	if i < 0 {
		return answerKey{}, false
	}
	return keys[i], true
}

// pressedKey returns the key that was pressed, in lower case. It is empty for
// keys that send several characters, such as arrows, and for pasted text: a part
// of these must not answer.
func pressedKey(typed string) string {
	key := strings.ToLower(strings.TrimRight(typed, "\r\n"))
	if utf8.RuneCountInString(key) != 1 {
		return ""
	}
	return key
}

// promptLine reads a line as the answer to a question.
func (k *agentAsker) promptLine(ctx context.Context, q *spool.Ask, question string) (agent.Decision, error) {
	mode := typeLine
	if q.Secret {
		mode = typeSecret
	}
	typed, err := k.console.begin(mode, question+"answer: ")
	if err != nil {
		return agent.Decision{Choice: agent.Deny, Message: noAnswer}, nil
	}
	after := ""
	if q.Secret {
		after = "\n" // that of the user is not shown
	}
	for {
		select {
		case <-ctx.Done():
			k.console.end("\n(no longer asked)\n")
			return agent.Decision{}, ctx.Err()
		case text, ok := <-typed:
			if !ok {
				k.console.end("\n")
				return agent.Decision{Choice: agent.Deny, Message: noAnswer}, nil
			}
			if line := strings.TrimSpace(text); line != "" {
				k.console.end(after)
				return agent.Decision{Choice: line}, nil
			}
			k.console.show(after + "answer: ")
		}
	}
}

// question returns the text of an ask for the terminal.
func (k *agentAsker) question(q *spool.Ask) string {
	if k.narrator == nil {
		return new(narrate.Narrator).Question(q, true)
	}
	return k.narrator.question(q)
}
