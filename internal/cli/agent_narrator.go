package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/sessions"
	"github.com/spool-run/spool/render"
)

// narrator prints the progress of an agent, one line per action. The last
// message of the agent is its answer and goes to its own writer; earlier
// messages are part of the progress.
type narrator struct {
	answer   io.Writer
	progress io.Writer
	style    style
	verbose  bool
	starts   bool     // print the start of an action too
	prompts  bool     // print prompts
	asks     bool     // print asks
	stamps   bool     // print the time before every line
	command  []string // the command of an ACP agent, for the resume line

	mu     sync.Mutex
	status *statusLine // nil without a terminal
	now    time.Time   // time of the current event
	agent  string
	cwd    string
	held   string // the last message, which may be the answer
	begun  map[string]action
	order  []string // keys of begun, oldest first
	began  map[spool.Seq]time.Time
	asked  map[spool.Seq]string
}

// action is a running action.
type action struct {
	title string
	since time.Time
}

// isAgent reports whether an event shows that its run is an agent's.
func (n *narrator) isAgent(e *spool.Event) bool {
	switch e.Kind {
	case agent.KindMessage, agent.KindReasoning, agent.KindAction, agent.KindPlan, agent.KindUsage, agent.KindRetry, spool.KindStarted:
		return true
	case spool.KindInput:
		var s spool.Said
		return json.Unmarshal(e.Data, &s) == nil && s.Kind == spool.InputPrompt
	}
	return false
}

// tell prints one event. Its error is that of the write.
func (n *narrator) tell(e *spool.Event) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.now = e.Time
	if n.status != nil {
		n.status.clear()
		defer n.draw(time.Now())
	}
	switch e.Kind {
	case spool.KindStarted:
		return n.started(e)
	case spool.KindInput:
		return n.input(e)
	case agent.KindMessage:
		return n.message(e)
	case agent.KindReasoning:
		var r agent.Reasoning
		if decode(e, &r) && !r.Delta && !r.History {
			return n.line(n.style.dim("· " + oneLine(r.Text, 200)))
		}
	case agent.KindAction:
		return n.action(e)
	case agent.KindPlan:
		return n.plan(e)
	case agent.KindRetry:
		return n.retry(e)
	case spool.KindNotice:
		return n.notice(e)
	case spool.KindAsk:
		return n.ask(e)
	case spool.KindDone:
		return n.done(e)
	case spool.KindTruncated:
		out, err := render.Renderer{}.Event(context.Background(), e) // the event refers to no blob
		return errors.Join(err, n.line("! "+out.Text))
	case spool.KindFailed:
		if o, ok := e.Outcome(); ok {
			return n.line(n.style.bad("✗ the run failed: ") + plain(o.Reason))
		}
	}
	return nil
}

func decode(e *spool.Event, v any) bool { return json.Unmarshal(e.Data, v) == nil }

// line writes one line, after the message that is held.
func (n *narrator) line(text string) error {
	if err := n.flush(); err != nil {
		return err
	}
	return n.write(n.progress, text)
}

// write writes lines, with the time before each if n.stamps is set.
func (n *narrator) write(w io.Writer, text string) error {
	if n.stamps {
		stamp := n.now.UTC().Format("2006-01-02T15:04:05.000000Z ")
		text = stamp + strings.ReplaceAll(text, "\n", "\n"+stamp)
	}
	_, err := io.WriteString(w, text+"\n")
	return err
}

// flush writes the held message to the progress: it is not the answer.
func (n *narrator) flush() error {
	text := n.held
	if text == "" {
		return nil
	}
	n.held = ""
	return n.write(n.progress, screenText(text))
}

func (n *narrator) started(e *spool.Event) error {
	var s agent.Started
	if !decode(e, &s) || s.Agent == "" {
		return nil
	}
	n.agent, n.cwd = s.Agent, s.Cwd
	parts := []string{s.Agent}
	if s.Version != "" {
		parts[0] += " " + s.Version
	}
	if s.Model != "" {
		parts = append(parts, s.Model)
	}
	session := "session " + s.Resume
	if s.Resumed {
		session += " (resumed)"
	}
	parts = append(parts, session)
	return n.line(n.style.dim(plain(strings.Join(parts, " · "))))
}

func (n *narrator) input(e *spool.Event) error {
	var s spool.Said
	if !decode(e, &s) {
		return nil
	}
	switch s.Kind {
	case spool.InputPrompt:
		if n.began == nil {
			n.began = make(map[spool.Seq]time.Time)
		}
		n.began[e.Seq] = e.Time
		var p spool.Prompt
		if n.prompts && json.Unmarshal(s.Data, &p) == nil {
			return n.line(n.style.bold("> ") + strings.ReplaceAll(screenText(p.Text), "\n", "\n  "))
		}
	case spool.InputAnswer:
		var a spool.Answer
		if json.Unmarshal(s.Data, &a) != nil {
			return nil
		}
		what := n.asked[a.Ask]
		delete(n.asked, a.Ask)
		return n.answered(what, choice(a), a.By)
	}
	return nil
}

// answered prints the answer to an ask.
func (n *narrator) answered(what, answer, by string) error {
	return n.line(n.style.dim(plain(fmt.Sprintf("→ %s: %s (%s)", cmp.Or(what, "a question"), answer, cmp.Or(by, "another client")))))
}

// choice returns the text of an answer.
func choice(a spool.Answer) string {
	if a.Error != nil {
		return a.Error.Message
	}
	var d agent.Decision
	if json.Unmarshal(a.Data, &d.Choice) != nil && json.Unmarshal(a.Data, &d) != nil {
		return "answered"
	}
	switch d.Choice {
	case agent.Allow:
		return "allowed"
	case agent.AllowSession:
		return "allowed for the session"
	case agent.Deny:
		return "denied"
	case agent.DenyStop:
		return "denied, and the turn ended"
	case "":
		return "answered"
	}
	return d.Choice
}

func (n *narrator) message(e *spool.Event) error {
	var m agent.Message
	if !decode(e, &m) || m.Delta || m.History && !n.verbose {
		return nil
	}
	if err := n.flush(); err != nil {
		return err
	}
	if m.Role == "" && m.Parent == "" && !m.History && m.Phase != agent.PhaseCommentary {
		n.held = m.Text
		return nil
	}
	return n.line(n.style.dim(screenText(m.Text)))
}

func (n *narrator) action(e *spool.Event) error {
	var a agent.Action
	if !decode(e, &a) || a.Kind == agent.ActionTurn || a.History {
		return nil
	}
	title := n.title(&a)
	switch a.Phase {
	case agent.ActionStarted:
		if n.begun == nil {
			n.begun = make(map[string]action)
		}
		n.begun[a.ID] = action{title, e.Time}
		n.order = append(n.order, a.ID)
		if n.starts {
			return n.line("… " + title)
		}
		return n.flush()
	case agent.ActionUpdated:
		if _, ok := n.begun[a.ID]; ok {
			n.begun[a.ID] = action{title, n.begun[a.ID].since}
		}
		return nil
	}
	mark := "•"
	if a.OK != nil {
		mark = n.style.good("✓")
		if !*a.OK {
			mark = n.style.bad("✗")
		}
	}
	var facts []string
	if a.ExitCode != nil && *a.ExitCode != 0 {
		facts = append(facts, fmt.Sprintf("exit %d", *a.ExitCode))
	}
	if a.Synthetic {
		facts = append(facts, cmp.Or(plain(a.Message), "not finished"))
	}
	if b, ok := n.begun[a.ID]; ok {
		facts = append(facts, elapsed(e.Time.Sub(b.since)))
		n.forget(a.ID)
	}
	line := mark + " " + title
	if len(facts) > 0 {
		line += n.style.dim(" (" + strings.Join(facts, ", ") + ")")
	}
	if err := n.line(line); err != nil {
		return err
	}
	if a.OK != nil && !*a.OK && !a.Synthetic {
		return n.quote(cmp.Or(a.Output, a.Message))
	}
	return nil
}

func (n *narrator) forget(id string) {
	delete(n.begun, id)
	for i, o := range n.order {
		if o == id {
			n.order = append(n.order[:i:i], n.order[i+1:]...)
			return
		}
	}
}

// quoted is the number of lines that quote shows.
const quoted = 5

// quote prints the last lines of an error output, where the reason usually is.
func (n *narrator) quote(text string) error {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	for _, l := range lines[max(0, len(lines)-quoted):] {
		if strings.TrimSpace(l) == "" {
			continue
		}
		if err := n.line(n.style.dim("    " + oneLine(l, 200))); err != nil {
			return err
		}
	}
	return nil
}

// title returns the title of an action.
func (n *narrator) title(a *agent.Action) string {
	text := oneLine(a.Title, 200)
	switch a.Kind {
	case agent.ActionCommand:
		return "$ " + text
	case agent.ActionFileChange:
		if len(a.Changes) == 0 {
			return "edit " + n.relative(text)
		}
		var files []string
		for _, c := range a.Changes {
			verb := map[string]string{"add": "add", "delete": "delete", "move": "move"}[c.Kind]
			files = append(files, cmp.Or(verb, "edit")+" "+n.relative(plain(c.Path)))
		}
		return oneLine(strings.Join(files, ", "), 200)
	case agent.ActionRead, agent.ActionSearch, agent.ActionFetch, agent.ActionWebSearch, agent.ActionSubagent:
		kind := strings.ReplaceAll(string(a.Kind), "_", " ")
		if !strings.HasPrefix(text, kind) {
			return kind + " " + text
		}
	}
	return text
}

// relative shortens a path below the working directory.
func (n *narrator) relative(path string) string {
	if rel, err := filepath.Rel(n.cwd, path); n.cwd != "" && err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

func (n *narrator) plan(e *spool.Event) error {
	var p agent.Plan
	if !decode(e, &p) || p.History || len(p.Items) == 0 {
		return nil
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
	if next != "" {
		line += ": " + oneLine(next, 120)
	}
	return n.line(n.style.dim(line))
}

func (n *narrator) retry(e *spool.Event) error {
	var r agent.Retry
	if !decode(e, &r) {
		return nil
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
		line += ": " + oneLine(r.Reason, 160)
	}
	return n.line(n.style.warn(line))
}

func (n *narrator) notice(e *spool.Event) error {
	var t spool.Notice
	if !decode(e, &t) || t.Text == "" {
		return nil
	}
	if t.Code == spool.NoticeAskClosed {
		what := n.asked[t.Ask]
		delete(n.asked, t.Ask)
		answer := t.Text
		if len(t.Data) > 0 {
			answer = choice(spool.Answer{Data: t.Data})
		}
		return n.answered(what, answer, t.By)
	}
	if (t.Level == "debug" || t.Level == "info") && !n.verbose {
		return nil
	}
	return n.line(n.style.warn("! " + oneLine(t.Text, 300)))
}

func (n *narrator) ask(e *spool.Event) error {
	var a spool.Ask
	if !decode(e, &a) {
		return nil
	}
	what := oneLine(cmp.Or(a.Prompt, a.Name, a.Kind), 160)
	if n.asks {
		if err := n.line(n.style.bold("? " + what)); err != nil {
			return err
		}
	}
	if a.Answer != nil {
		return n.answered(what, choice(*a.Answer), a.Answer.By)
	}
	if n.asked == nil {
		n.asked = make(map[spool.Seq]string)
	}
	n.asked[e.Seq] = what
	if n.asks {
		return nil
	}
	return n.flush()
}

func (n *narrator) done(e *spool.Event) error {
	var d spool.Done
	if !decode(e, &d) {
		return nil
	}
	if d.Answer != "" {
		if d.Answer != n.held {
			if err := n.flush(); err != nil {
				return err
			}
		}
		n.held = ""
		if err := n.write(n.answer, strings.TrimRight(n.safe(d.Answer), "\n")); err != nil {
			return err
		}
	}
	took := time.Duration(d.DurationMs) * time.Millisecond
	if began, ok := n.began[e.Turn]; ok && took == 0 {
		took = e.Time.Sub(began)
	}
	delete(n.began, e.Turn)
	line := n.style.good("✓ done")
	if d.Outcome != spool.TurnOK {
		line = n.style.bad("✗ " + strings.ReplaceAll(string(d.Outcome), "_", " "))
		if d.ErrorClass != "" && d.ErrorClass != agent.ClassOther && d.ErrorClass != agent.ClassStopped {
			line += " (" + strings.ReplaceAll(plain(d.ErrorClass), "_", " ") + ")"
		}
		if d.Error != "" {
			line += ": " + oneLine(d.Error, 500)
		}
	}
	facts := []string{elapsed(took)}
	var u agent.Usage
	if json.Unmarshal(d.Usage, &u) == nil {
		facts = append(facts, spent(&u)...)
	}
	if err := n.line(line + n.style.dim(" · "+strings.Join(facts, " · "))); err != nil {
		return err
	}
	if d.Outcome != spool.TurnOK {
		if err := n.quote(d.Stderr); err != nil {
			return err
		}
	}
	if d.Resume == "" || n.agent == "" {
		return nil
	}
	resume, err := sessions.ResumeLine(n.agent, sessions.Token{Engine: n.agent, Value: d.Resume}, n.command...)
	if err != nil {
		return nil // no command resumes a session with such an id
	}
	return n.line(n.style.dim("resume with " + plain(resume)))
}

// safe returns the answer, without control characters if it goes to a terminal.
func (n *narrator) safe(text string) string {
	if n.style.screen {
		return screenText(text)
	}
	return text
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

// oneLine returns text as one line of at most n characters.
func oneLine(s string, limit int) string {
	return cut(strings.Join(strings.Fields(plain(s)), " "), limit)
}

// screenText returns text of several lines without control characters.
func screenText(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i, l := range lines {
		lines[i] = plain(strings.ReplaceAll(l, "\t", "    "))
	}
	return strings.Join(lines, "\n")
}
