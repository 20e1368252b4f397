package cli

import (
	"context"
	"errors"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/sessions"
	"github.com/spool-run/spool/internal/narrate"
	"github.com/spool-run/spool/internal/visible"
	"github.com/spool-run/spool/render"
)

// narrator writes what happens in an agent's run: the answers to one writer, the
// progress to another. On a terminal a status line follows the progress.
type narrator struct {
	answer   io.Writer
	progress io.Writer
	screen   bool // the answer goes to a terminal
	stamps   bool // write the time before every line

	mu     sync.Mutex
	text   narrate.Narrator
	status *statusLine // nil without a terminal
	heard  time.Time   // when the last event arrived
}

// newNarrator returns the narrator of a live turn.
func (a *app) newNarrator(o *agentOptions) *narrator {
	n := &narrator{answer: a.screen(a.stdout), progress: a.screen(a.stderr), screen: isTerminal(a.stdout), heard: time.Now()}
	n.text = narrate.Narrator{
		Colour: colour(a.stderr), Verbose: a.verbose, Agent: o.agent, Resume: resumeText(o.command),
		Starts: true, Answer: narrate.AnswerApart,
	}
	if !isTerminal(a.stderr) {
		return n
	}
	n.text.Answer = narrate.AnswerAgain
	if n.screen {
		n.text.Answer = narrate.AnswerOnce
	}
	if os.Getenv("TERM") != "dumb" {
		n.text.Starts = false // the status line shows what runs
		n.status = &statusLine{terminal: a.stderr, colour: n.text.Colour}
	}
	return n
}

// narrator returns the narrator of a log of an agent's run, or nil if no event so
// far shows that the run is one.
func (p *printer) narrator(e *spool.Event) *narrator {
	if p.agent != nil || !p.isAgent && !narrate.IsAgent(e) {
		return p.agent
	}
	n := &narrator{answer: p.stdout, progress: p.stdout, stamps: p.timestamps}
	n.text = narrate.Narrator{Colour: p.colour, Verbose: p.verbose, Starts: p.live, Prompts: true, Asks: true, Resume: resumeText(nil)}
	if p.only != "" {
		n.text.Answer = narrate.AnswerApart
	}
	switch p.only {
	case spool.Stdout:
		n.progress = io.Discard
	case spool.Stderr:
		n.answer = io.Discard
	}
	p.agent = n
	return n
}

// resumeText returns the function that says how to resume a session. The command
// is that of an ACP agent, if it is known.
func resumeText(command []string) func(name, session string) string {
	return func(name, session string) string {
		own, err := sessions.ResumeLine(name, sessions.Token{Engine: name, Value: session}, command...)
		switch {
		case err != nil:
			return "" // no command resumes a session with such an id
		case name == agent.ACP:
			return "resume with " + own
		}
		return "resume with `" + commandText([]string{"spool", "agent", name, "--resume", session}) + " PROMPT`\n         or " + own
	}
}

// tell writes one event. Its error is that of the write.
func (n *narrator) tell(e *spool.Event) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.heard = time.Now()
	texts := n.text.Event(e)
	if e.Kind == spool.KindTruncated {
		out, _ := render.Renderer{}.Event(context.Background(), e) // the event refers to no blob
		texts = append(texts, narrate.Text{Text: "! " + out.Text})
	}
	if len(texts) > 0 {
		n.status.clear()
	}
	var failed error
	for _, t := range texts {
		w, text := n.progress, t.Text
		if t.Answer {
			w = n.answer
			if n.screen {
				text = visible.Text(text)
			}
		}
		failed = errors.Join(failed, n.write(w, e.Time, text))
	}
	n.draw()
	return failed
}

// write writes lines, with the time before each if n.stamps is set.
func (n *narrator) write(w io.Writer, at time.Time, text string) error {
	if n.stamps {
		stamp := at.UTC().Format("2006-01-02T15:04:05.000000Z ")
		text = stamp + strings.ReplaceAll(text, "\n", "\n"+stamp)
	}
	_, err := io.WriteString(w, text+"\n")
	return err
}

// draw draws the status line. The caller holds n.mu.
func (n *narrator) draw() { n.status.show(n.text.Status(time.Since(n.heard))) }

// tick updates the status line.
func (n *narrator) tick() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.status.spin()
	n.draw()
}

// pause hides the status line until it is called again with false.
func (n *narrator) pause(off bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.status.pause(off)
	if !off {
		n.draw()
	}
}

// question returns the text of an ask in full.
func (n *narrator) question(q *spool.Ask) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.text.Question(q, true)
}

// say writes a message of spool.
func (n *narrator) say(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.status.clear()
	_, _ = io.WriteString(n.progress, "spool: "+text+"\n") // the next event reports the error
	n.draw()
}
