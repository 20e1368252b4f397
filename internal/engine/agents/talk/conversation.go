// Package talk holds what the translator of every agent uses: the
// [Conversation] that each of them implements, the [Turn] that takes what the
// agent says, and the means to read JSON of which only a part is known.
package talk

import (
	"fmt"
	"strings"
	"syscall"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// Agent knows one agent: how it is started and what it says.
type Agent struct {
	Name    string
	Program string // what is looked for in PATH
	Install string // how a person gets it
	// Signal is the one on which the agent ends well, with its commands.
	Signal syscall.Signal
	// Quiet is set if the agent does not tell when an action starts, so
	// that silence may always mean a running tool.
	Quiet bool
	// Exclusive is set if a process that lives on keeps the session to
	// itself: others can go on with it only once the process has ended.
	Exclusive bool
	// Env are variables it gets unless they are set.
	Env map[string]string

	// Exec returns the conversation of exec mode, which takes one prompt.
	// nil means that there is none.
	Exec func(Setup) (Conversation, error)
	// Duplex returns the conversation of duplex mode, if there is any.
	Duplex func(Setup) (Conversation, error)
	// Capabilities are the capabilities in duplex mode; see [agent.Started].
	Capabilities []string
}

// Setup is what a new conversation starts from.
type Setup struct {
	Config *agent.Config
	Cwd    string
	// Resume is the id of the session to go on with, or empty. It differs
	// from that of the config once the run has a session of its own.
	Resume string
	// Fork is set for the first process of a run that forks.
	Fork bool
	// Opening is the first prompt. Exec mode passes it in the command line; in
	// duplex mode it comes with conversation.prompt, too.
	Opening spool.Prompt
}

// Command is a process to start.
type Command struct {
	Argv  []string // argv[0] is looked up in PATH unless it has a slash
	Env   map[string]string
	Stdin []byte // written at once
	// Open keeps standard input open for wire.write.
	Open bool
}

// maxArgument is the longest prompt that is passed as an argument. Linux takes
// no argument of 128 KiB.
const maxArgument = 100 << 10

// WithPrompt passes a prompt as the last argument, or on standard input if it does
// not fit or could not be one. Agents that take it as an argument take it
// there, too, when there is none.
func WithPrompt(argv []string, text string, env map[string]string) Command {
	if len(text) > maxArgument || strings.IndexByte(text, 0) >= 0 {
		return Command{Argv: argv, Env: env, Stdin: []byte(text)}
	}
	return Command{Argv: append(argv, "--", text), Env: env}
}

// Wire is a conversation's way to the process. Writing never waits: it is
// queued, and what cannot be delivered shows in how the process ends.
type Wire interface {
	Write(b []byte)
	CloseInput()
}

// Conversation is how to talk with one process of an agent. Its methods are
// called by one goroutine. Everything it has to say goes to the turn that it
// is given; between turns that is one which belongs to no turn, and whose
// finish says nothing.
type Conversation interface {
	// Command says what to start.
	Command() (Command, error)
	// Opened is called once the process runs. A protocol begins here.
	Opened(w Wire, t *Turn)
	// Prompt begins a turn. In exec mode the command has said it already.
	Prompt(p spool.Prompt, t *Turn) error
	// Line takes one line of standard output, without its end.
	Line(b []byte, t *Turn)
	// Interrupt asks the agent to end the turn, in its own protocol.
	// [spool.ErrUnsupported] says that there is no way to.
	Interrupt(t *Turn) error
	// Steer adds to the running turn; it too may be unsupported.
	Steer(p spool.Prompt, t *Turn) error
	// Answer answers what turn.ask asked with that key.
	Answer(key string, d agent.Decision, t *Turn) error
	// Ended is called when the process has ended, or will say nothing more,
	// and the turn has no result. It must call turn.finish.
	Ended(x Exit, t *Turn)
}

// Exit is how a process ended.
type Exit struct {
	Code   int
	Signal string // empty unless one ended it
	Stderr string // what it said there, in its beginning and end
}

// OneShot has what conversations of exec mode have in common: nothing can be
// said to the process.
type OneShot struct{}

func (OneShot) Opened(Wire, *Turn)                         {}
func (OneShot) Prompt(spool.Prompt, *Turn) error           { return nil }
func (OneShot) Interrupt(*Turn) error                      { return spool.ErrUnsupported }
func (OneShot) Steer(spool.Prompt, *Turn) error            { return spool.ErrUnsupported }
func (OneShot) Answer(string, agent.Decision, *Turn) error { return spool.ErrUnsupported }

// FailedExit is the result of an agent that left without a last word. What it
// said on standard error is not in the text, only in its class: that may hold
// anything, and has its own place.
func FailedExit(tag string, x Exit, answer string) Result {
	r := Result{Outcome: spool.TurnError, Answer: answer, Class: Classify(x.Stderr, 0),
		Error: fmt.Sprintf("%s failed (rc=%d).", tag, x.Code)}
	if x.Signal != "" {
		r.Outcome = spool.TurnCrashed
		r.Error = fmt.Sprintf("%s was ended by %s.", tag, x.Signal)
	}
	return r
}
