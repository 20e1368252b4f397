package agents

import (
	"strings"
	"syscall"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// runner knows one agent: how it is started and what it says.
type runner struct {
	name    string
	program string // what is looked for in PATH
	install string // how a person gets it
	// signal is the one on which the agent ends well, with its commands.
	signal syscall.Signal
	// quiet is set if the agent does not tell when an action starts, so
	// that silence may always mean a running tool.
	quiet bool
	// exclusive is set if a process that lives on keeps the session to
	// itself: others can go on with it only once the process has ended.
	exclusive bool
	// env are variables it gets unless they are set.
	env map[string]string

	// exec returns the conversation of exec mode, which takes one prompt.
	// nil means that there is none.
	exec func(setup) (conversation, error)
	// duplex returns the conversation of duplex mode, if there is any.
	duplex func(setup) (conversation, error)
	// can are the capabilities in duplex mode; see [agent.Started].
	can []string
}

// setup is what a new conversation starts from.
type setup struct {
	config *Config
	cwd    string
	// resume is the id of the session to go on with, or empty. It differs
	// from that of the config once the run has a session of its own.
	resume string
	// fork is set for the first process of a run that forks.
	fork bool
	// opening is the first prompt. Exec mode passes it in the command line; in
	// duplex mode it comes with conversation.prompt, too.
	opening spool.Prompt
}

// command is a process to start.
type command struct {
	argv  []string // argv[0] is looked up in PATH unless it has a slash
	env   map[string]string
	stdin []byte // written at once
	// open keeps standard input open for wire.write.
	open bool
}

// maxArgument is the longest prompt that is passed as an argument. Linux takes
// no argument of 128 KiB.
const maxArgument = 100 << 10

// saying passes a prompt as the last argument, or on standard input if it does
// not fit or could not be one. Agents that take it as an argument take it
// there, too, when there is none.
func saying(argv []string, text string, env map[string]string) command {
	if len(text) > maxArgument || strings.IndexByte(text, 0) >= 0 {
		return command{argv: argv, env: env, stdin: []byte(text)}
	}
	return command{argv: append(argv, "--", text), env: env}
}

// wire is a conversation's way to the process. Writing never waits: it is
// queued, and what cannot be delivered shows in how the process ends.
type wire interface {
	write(b []byte)
	closeInput()
}

// conversation is how to talk with one process of an agent. Its methods are
// called by one goroutine. Everything it has to say goes to the turn that it
// is given; between turns that is one which belongs to no turn, and whose
// finish says nothing.
type conversation interface {
	// command says what to start.
	command() (command, error)
	// opened is called once the process runs. A protocol begins here.
	opened(w wire, t *turn)
	// prompt begins a turn. In exec mode the command has said it already.
	prompt(p spool.Prompt, t *turn) error
	// line takes one line of standard output, without its end.
	line(b []byte, t *turn)
	// interrupt asks the agent to end the turn, in its own protocol.
	// [spool.ErrUnsupported] says that there is no way to.
	interrupt(t *turn) error
	// steer adds to the running turn; it too may be unsupported.
	steer(p spool.Prompt, t *turn) error
	// answer answers what turn.ask asked with that key.
	answer(key string, d agent.Decision, t *turn) error
	// ended is called when the process has ended, or will say nothing more,
	// and the turn has no result. It must call turn.finish.
	ended(x exit, t *turn)
}

// exit is how a process ended.
type exit struct {
	code   int
	signal string // empty unless one ended it
	stderr string // what it said there, in its beginning and end
}

// oneShot has what conversations of exec mode have in common: nothing can be
// said to the process.
type oneShot struct{}

func (oneShot) opened(wire, *turn)                         {}
func (oneShot) prompt(spool.Prompt, *turn) error           { return nil }
func (oneShot) interrupt(*turn) error                      { return spool.ErrUnsupported }
func (oneShot) steer(spool.Prompt, *turn) error            { return spool.ErrUnsupported }
func (oneShot) answer(string, agent.Decision, *turn) error { return spool.ErrUnsupported }

// known are the agents there are.
var known = []func() *runner{codexRunner, claudeRunner, openCodeRunner, piRunner, acpRunner}

// runners are the agents by name.
func runners() map[string]*runner {
	all := make(map[string]*runner)
	for _, r := range known {
		r := r()
		all[r.name] = r
	}
	return all
}
