// Package narrate turns the events of an agent's run into text for a person. The
// live display of a turn, the printed log of an old run and package render all
// use it, so that they show the same.
package narrate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/visible"
)

// AnswerMode is when the answer of a turn is told. It is usually the last message
// of the agent, and the end of the turn repeats it.
type AnswerMode int

// The modes.
const (
	AnswerOnce  AnswerMode = iota // messages at once; the answer at the end unless it was told
	AnswerApart                   // the last message is held back until another event shows whether it is the answer
	AnswerAgain                   // messages at once, and the answer at the end again
	AnswerNone                    // messages at once; no answer at the end
)

// Text is some lines, without a newline at the end.
type Text struct {
	Text   string
	Answer bool // it is the answer of the turn, not progress
}

// Narrator tells the events of one run, in their order. It remembers what their
// text depends on: what began when, and what was asked. The zero value is ready
// to use.
type Narrator struct {
	Colour  bool
	Verbose bool // also tell history, thoughts and diffs in full, output and usage
	Starts  bool // tell when an action starts, not only when it ends
	Prompts bool // tell prompts
	Asks    bool // tell asks; otherwise a prompt on the terminal shows them
	Answer  AnswerMode
	// Agent is the name of the agent until it is known from an event.
	Agent string
	// Resume returns the text that says how to resume a session, or "".
	Resume func(agent, session string) string

	out    []Text
	at     time.Time // of the current event
	ready  bool      // the session is known
	cwd    string
	held   string   // the last message, if it is held back
	said   []string // the last messages of the turn
	turns  map[spool.Seq]time.Time
	open   map[string]running
	order  []string // keys of open, oldest first
	asked  map[spool.Seq]string
	shown  map[string]bool // actions whose diff a question showed
	plan   []agent.PlanItem
	tokens int64
}

// running is an action that has not ended.
type running struct {
	title string
	since time.Time
}

// IsAgent reports whether an event shows that its run is an agent's.
func IsAgent(e *spool.Event) bool {
	switch e.Kind {
	case agent.KindMessage, agent.KindReasoning, agent.KindAction, agent.KindPlan, agent.KindUsage, agent.KindRetry:
		return true
	case spool.KindStarted:
		var s agent.Started
		return decode(e, &s) && s.Agent != ""
	case spool.KindInput:
		var s spool.Said
		return decode(e, &s) && s.Kind == spool.InputPrompt
	case spool.KindAsk:
		var a spool.Ask
		return decode(e, &a) && (a.Kind == agent.AskApproval || a.Kind == agent.AskQuestion)
	case spool.KindDone:
		var d spool.Done
		return decode(e, &d) && (d.Resume != "" || d.Answer != "")
	}
	return false
}

// Event returns the text of the next event. There may be none, and it may include
// that of earlier events.
func (n *Narrator) Event(e *spool.Event) []Text {
	n.out, n.at = nil, e.Time
	switch e.Kind {
	case spool.KindStarted:
		n.started(e)
	case spool.KindInput:
		n.input(e)
	case agent.KindMessage:
		n.message(e)
	case agent.KindReasoning:
		n.reasoning(e)
	case agent.KindAction:
		n.action(e)
	case agent.KindPlan:
		n.planned(e)
	case agent.KindUsage:
		n.usage(e)
	case agent.KindRetry:
		n.retry(e)
	case spool.KindNotice:
		n.notice(e)
	case spool.KindAsk:
		n.ask(e)
	case spool.KindDone:
		n.done(e)
	case spool.KindFailed:
		if o, ok := e.Outcome(); ok {
			n.line(n.bad("✗ the run failed: ") + visible.Line(o.Reason))
		}
	case spool.KindClosed:
		n.flush()
	}
	return n.out
}

func decode(e *spool.Event, v any) bool { return json.Unmarshal(e.Data, v) == nil }

// line adds lines, after the message that is held.
func (n *Narrator) line(text string) {
	n.flush()
	n.out = append(n.out, Text{Text: text})
}

// flush adds the message that is held: it is not the answer.
func (n *Narrator) flush() {
	if n.held != "" {
		n.out = append(n.out, Text{Text: visible.Text(n.held)})
		n.held = ""
	}
}

func (n *Narrator) started(e *spool.Event) {
	var s agent.Started
	if !decode(e, &s) || s.Agent == "" {
		return
	}
	n.Agent, n.cwd, n.ready = s.Agent, s.Cwd, true
	parts := []string{strings.TrimSpace(s.Agent + " " + s.Version)}
	if s.Model != "" {
		parts = append(parts, s.Model)
	}
	if s.Resume != "" {
		session := "session " + s.Resume
		if s.Resumed {
			session += " (resumed)"
		}
		parts = append(parts, session)
	}
	n.line(n.dim(visible.Line(strings.Join(parts, " · "))))
}

func (n *Narrator) input(e *spool.Event) {
	var s spool.Said
	if !decode(e, &s) {
		return
	}
	switch s.Kind {
	case spool.InputPrompt:
		if n.turns == nil {
			n.turns = make(map[spool.Seq]time.Time)
		}
		n.turns[e.Seq] = e.Time
		n.said, n.tokens = nil, 0
		var p spool.Prompt
		if n.Prompts && json.Unmarshal(s.Data, &p) == nil {
			n.line(n.bold("> ") + indent(PromptText(&p), "  "))
		}
	case spool.InputAnswer:
		var a spool.Answer
		if json.Unmarshal(s.Data, &a) != nil {
			return
		}
		what := n.asked[a.Ask]
		delete(n.asked, a.Ask)
		n.answered(what, choice(a), a.By)
	}
}

// PromptText is what a prompt says, with a line for each image.
func PromptText(p *spool.Prompt) string {
	var lines []string
	if p.Text != "" {
		lines = append(lines, visible.Text(p.Text))
	}
	for _, image := range p.Images {
		lines = append(lines, fmt.Sprintf("[%s of %d bytes]", visible.Text(image.MIME), max(image.Size, int64(len(image.Bytes)))))
	}
	return strings.Join(lines, "\n")
}

// indent begins every line but the first with a prefix.
func indent(text, prefix string) string { return strings.ReplaceAll(text, "\n", "\n"+prefix) }

// maxSaid is how many messages are compared with the answer.
const maxSaid = 16

func (n *Narrator) message(e *spool.Event) {
	var m agent.Message
	if !decode(e, &m) || m.Delta || m.History && !n.Verbose || m.Text == "" {
		return
	}
	n.flush()
	text := m.Text
	if m.Blob != nil {
		text += fmt.Sprintf("\n… %d more bytes", m.Blob.Size-int64(len(m.Text)))
	}
	if m.Role != "" || m.Parent != "" || m.History || m.Phase == agent.PhaseCommentary {
		n.line(n.dim(visible.Text(text)))
		return
	}
	if n.Answer == AnswerApart {
		n.held = text
		return
	}
	n.said = append(n.said[max(0, len(n.said)-maxSaid+1):], text)
	n.line(visible.Text(text))
}

// told reports whether the last messages are the answer: some agents give it in
// several messages.
func (n *Narrator) told(answer string) bool {
	answer = strings.TrimSpace(answer)
	all := ""
	for i := len(n.said) - 1; i >= 0; i-- {
		if all = strings.TrimSpace(n.said[i] + "\n" + all); all == answer {
			return true
		}
	}
	return false
}

// shortThought is how much of a thought is told, in columns.
const shortThought = 200

func (n *Narrator) reasoning(e *spool.Event) {
	var r agent.Reasoning
	switch {
	case !decode(e, &r) || r.Delta || r.History || strings.TrimSpace(r.Text) == "":
	case n.Verbose:
		n.line(n.dim("· " + indent(visible.Text(r.Text), "  ")))
	default:
		n.line(n.dim("· " + visible.Short(r.Text, shortThought)))
	}
}

func (n *Narrator) planned(e *spool.Event) {
	var p agent.Plan
	if !decode(e, &p) || p.History || len(p.Items) == 0 {
		return
	}
	done, next := 0, ""
	for _, i := range p.Items {
		switch {
		case i.Status == "completed":
			done++
		case next == "" || i.Status == "in_progress":
			next = i.Text
		}
	}
	line := fmt.Sprintf("plan %d/%d", done, len(p.Items))
	if n.samePlan(p.Items) { // only the progress is news
		if next != "" {
			line += ": " + visible.Short(next, 120)
		}
		n.line(n.dim(line))
		return
	}
	n.plan = p.Items
	var b strings.Builder
	b.WriteString(line)
	for _, i := range p.Items {
		mark := map[string]string{"completed": "✓", "in_progress": "→"}[i.Status]
		b.WriteString("\n  " + cmp.Or(mark, "·") + " " + visible.Short(i.Text, 200))
	}
	n.line(n.dimLines(b.String()))
}

// samePlan reports whether the items are those that were told.
func (n *Narrator) samePlan(items []agent.PlanItem) bool {
	if len(items) != len(n.plan) {
		return false
	}
	for i := range items {
		if items[i].Text != n.plan[i].Text {
			return false
		}
	}
	return true
}

func (n *Narrator) usage(e *spool.Event) {
	var u agent.Usage
	if !decode(e, &u) {
		return
	}
	if u.Turn != nil {
		n.tokens = u.Turn.Tokens()
	}
	if facts := spent(&u); n.Verbose && len(facts) > 0 {
		n.line(n.dim("used " + strings.Join(facts, " · ")))
	}
}

func (n *Narrator) retry(e *spool.Event) {
	var r agent.Retry
	if !decode(e, &r) {
		return
	}
	line := fmt.Sprintf("↻ retry %d", r.Attempt)
	if r.Max > 0 {
		line += fmt.Sprintf("/%d", r.Max)
	}
	if r.DelayMs > 0 {
		line += " in " + elapsed(time.Duration(r.DelayMs)*time.Millisecond)
	}
	if r.Status > 0 {
		line += fmt.Sprintf(", status %d", r.Status)
	}
	if r.Reason != "" {
		line += ": " + visible.Short(r.Reason, 160)
	}
	n.line(n.warn(line))
}

func (n *Narrator) notice(e *spool.Event) {
	var t spool.Notice
	if !decode(e, &t) || t.Text == "" {
		return
	}
	if t.Code == spool.NoticeAskClosed {
		what := n.asked[t.Ask]
		delete(n.asked, t.Ask)
		answer := t.Text
		if len(t.Data) > 0 {
			answer = choice(spool.Answer{Data: t.Data})
		}
		n.answered(what, answer, t.By)
		return
	}
	if (t.Level == "debug" || t.Level == "info") && !n.Verbose {
		return
	}
	n.line(n.warn("! " + visible.Short(t.Text, 300)))
}

func (n *Narrator) done(e *spool.Event) {
	var d spool.Done
	if !decode(e, &d) {
		return
	}
	n.answer(d.Answer)
	took := time.Duration(d.DurationMs) * time.Millisecond
	if began, ok := n.turns[e.Turn]; ok && took == 0 {
		took = e.Time.Sub(began)
	}
	delete(n.turns, e.Turn)
	line := n.good("✓ done")
	if d.Outcome != spool.TurnOK {
		line = n.bad("✗ " + strings.ReplaceAll(visible.Line(string(d.Outcome)), "_", " "))
		if d.ErrorClass != "" && d.ErrorClass != agent.ClassOther && d.ErrorClass != agent.ClassStopped {
			line += " (" + strings.ReplaceAll(visible.Line(d.ErrorClass), "_", " ") + ")"
		}
		if d.Error != "" {
			line += ": " + visible.Short(d.Error, 500)
		}
	}
	facts := []string{elapsed(took)}
	var u agent.Usage
	if json.Unmarshal(d.Usage, &u) == nil {
		facts = append(facts, spent(&u)...)
	}
	n.line(line + n.dim(" · "+strings.Join(facts, " · ")))
	switch d.Outcome {
	case spool.TurnError, spool.TurnCrashed, spool.TurnKilled: // nobody asked for the end
		n.quote(d.Stderr)
	}
	if d.Resume != "" && n.Agent != "" && n.Resume != nil {
		if text := n.Resume(n.Agent, d.Resume); text != "" {
			n.line(n.dim(visible.Text(text)))
		}
	}
	clear(n.open)
	n.order, n.said = nil, nil
}

// answer tells the answer of a turn.
func (n *Narrator) answer(text string) {
	if text == "" || n.Answer == AnswerNone || n.Answer == AnswerOnce && n.told(text) {
		n.flush()
		return
	}
	if text == n.held {
		n.held = ""
	}
	n.flush()
	n.out = append(n.out, Text{Text: strings.TrimRight(text, "\n"), Answer: true})
}

// spent returns the usage of a turn as text.
func spent(u *agent.Usage) []string {
	s := u.Turn
	if s == nil {
		s = u.Session
	}
	if s == nil {
		return nil
	}
	facts := []string{fmt.Sprintf("%d tokens in, %d out", s.Input, s.Output)}
	if s.CostUSD > 0 {
		facts = append(facts, fmt.Sprintf("$%.4f", s.CostUSD))
	}
	return facts
}

// elapsed formats a duration as people write it.
func elapsed(d time.Duration) string {
	switch {
	case d < 0:
		return "0.0s"
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Seconds())
	}
	return d.Round(time.Second).String()
}
