// Package talk holds what the translator of every agent uses: the
// [Conversation] that each of them implements, the [Turn] that takes what the
// agent says, and the means to read JSON of which only a part is known.
package talk

import (
	"fmt"
	"syscall"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// Agent describes one agent: how to start it, and how to talk to it.
type Agent struct {
	Name    string // in [agent.Config.Agent]
	Program string // the executable that is looked up in PATH
	Install string // a command that installs it
	// Signal is the signal on which the agent exits cleanly and ends its
	// commands.
	Signal syscall.Signal
	// Quiet is set if the agent does not report the start of an action, so
	// that silence may always mean a running tool.
	Quiet bool
	// Exclusive is set if other processes cannot resume a session before
	// the process that has it exits.
	Exclusive bool
	// Env are variables that are set for it unless they have a value.
	Env map[string]string
	// State returns where the agent keeps its configuration and sessions, by
	// the variables of its environment. It must be able to write there. Nil
	// means that this is not known.
	State func(getenv func(string) string) []string

	// Exec returns the conversation of exec mode, which takes one prompt.
	// Nil means that the agent has no exec mode.
	Exec func(Setup) (Conversation, error)
	// Duplex returns the conversation of duplex mode. Nil means that the
	// agent has none.
	Duplex func(Setup) (Conversation, error)
	// Images is set if the agent may be shown images in duplex mode.
	Images bool
	// Capabilities are those of duplex mode; see [agent.Started].
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
	// Opening is the first prompt. Exec mode passes it with the command; in
	// duplex mode it comes with [Conversation.Prompt], too.
	Opening spool.Prompt
}

// Command is a process to start.
type Command struct {
	Argv  []string // argv[0] is looked up in PATH unless it has a slash
	Env   map[string]string
	Stdin []byte // written at once
	// Open keeps standard input open for [Wire].
	Open bool
}

// WithPrompt passes a prompt on standard input: other users of the machine can
// read the arguments of a process, and an argument cannot be as long as a
// prompt. Agents that take a prompt as an argument read it from standard input if
// there is no such argument.
func WithPrompt(argv []string, text string, env map[string]string) Command {
	return Command{Argv: argv, Env: env, Stdin: []byte(text)}
}

// Wire is the standard input of the process. Writing never waits: what is
// written is queued.
type Wire interface {
	Write(b []byte)
	CloseInput()
}

// Conversation talks with one process of an agent. Its methods are called by one
// goroutine. It reports everything to the turn that it is given. Between turns
// that is a turn with seq zero, which has no result.
type Conversation interface {
	// Command returns the process to start.
	Command() (Command, error)
	// Opened is called once the process runs. A protocol begins here.
	Opened(w Wire, t *Turn)
	// Prompt begins a turn. In exec mode the command holds the prompt.
	Prompt(p spool.Prompt, t *Turn) error
	// Line takes one line of standard output, without its end.
	Line(b []byte, t *Turn)
	// Interrupt asks the agent to end the turn, in its own protocol.
	// [spool.ErrUnsupported] means that the protocol has no way to.
	Interrupt(t *Turn) error
	// Steer adds to the running turn; it too may be unsupported.
	Steer(p spool.Prompt, t *Turn) error
	// Answer answers the [Turn.Ask] with that key.
	Answer(key string, d agent.Decision, t *Turn) error
	// Ended is called when the process has exited, or its output has ended,
	// and the turn has no result. It must call [Turn.Finish].
	Ended(x Exit, t *Turn)
}

// Exit is how a process ended.
type Exit struct {
	Code   int
	Signal string // that ended it, or empty
	Stderr string // the first and last lines of standard error
	// OutOfMemory is set if the kernel killed a process because of the limit of
	// memory of the run.
	OutOfMemory bool
	// Refused is how many forks the limit of processes refused, and Throttled in
	// how many tenths of a second the limit of processor time was reached.
	Refused, Throttled int64
	// Used is what it used; nil if that is not known.
	Used *spool.ProcessUse
}

// OneShot is embedded by conversations of exec mode: after its start the process
// takes no input.
type OneShot struct{}

// Opened does nothing.
func (OneShot) Opened(Wire, *Turn) {}

// Prompt does nothing: the command line held the prompt.
func (OneShot) Prompt(spool.Prompt, *Turn) error { return nil }

// Interrupt is not supported.
func (OneShot) Interrupt(*Turn) error { return spool.ErrUnsupported }

// Steer is not supported.
func (OneShot) Steer(spool.Prompt, *Turn) error { return spool.ErrUnsupported }

// Answer is not supported.
func (OneShot) Answer(string, agent.Decision, *Turn) error { return spool.ErrUnsupported }

// FailedExit is the result of an agent that exited without a result. What it
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
