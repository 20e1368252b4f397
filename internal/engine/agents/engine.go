package agents

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/process"
	"github.com/spool-run/spool/internal/environ"
	"github.com/spool-run/spool/internal/launch"
)

// Options configure an engine. The zero value is usable.
type Options struct {
	// Owner names this engine's process trees; see [launch.Options].
	Owner string
	// Tree says how process trees are held.
	Tree launch.TreeMode
	// Dir is where the locks and the usage of sessions are kept. All that
	// may resume the same sessions must name the same; empty means a
	// directory of the user.
	Dir string
	// Environ is what [spool.EnvPolicy] inherits from; nil means the
	// environment of this process.
	Environ []string
	// Limits are the defaults of a run's limits.
	Limits spool.Limits
}

// DefaultDir is where [Options.Dir] is if it names nothing.
func DefaultDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return filepath.Join(os.TempDir(), "spool-agents-"+strconv.Itoa(os.Getuid()))
	}
	return filepath.Join(dir, "spool", "agents")
}

func invalid(err error) error {
	return &spool.StartError{Reason: spool.StartInvalid, Err: err}
}

// NotInstalled is why a run of an agent that is not there did not start.
type NotInstalled struct {
	Agent   string
	Program string
	Install string // a command that installs it, if one is known
}

func (e *NotInstalled) Error() string {
	return fmt.Sprintf("%s is not installed: no program %q in the PATH of its environment", e.Agent, e.Program)
}

// lookRunner finds the agent that a config names.
func lookRunner(c *Config) (*runner, error) {
	all := runners()
	r, ok := all[c.Agent]
	if !ok {
		names := make([]string, 0, len(all))
		for name := range all {
			names = append(names, name)
		}
		slices.Sort(names)
		return nil, fmt.Errorf("unknown agent %q: there are %s", c.Agent, strings.Join(names, ", "))
	}
	return r, nil
}

// transport decides how to talk to the agent.
func transport(c *Config, r *runner) (duplex bool, err error) {
	switch {
	case c.Mode == ModeExec && r.exec == nil, c.Mode == ModeDuplex && r.duplex == nil:
		return false, fmt.Errorf("%s has no %s mode", r.name, c.Mode)
	case c.Mode == ModeExec || r.duplex == nil:
		return false, nil
	}
	if c.Mode == ModeAuto && r.exec != nil {
		// Not everything that can be asked for can be had both ways.
		if _, err := r.duplex(setup{config: c, resume: c.Resume, fork: c.Fork}); errors.Is(err, spool.ErrUnsupported) {
			return false, nil
		}
	}
	return true, nil
}

// prepare checks a spec and makes a session of it that has not begun. Nothing
// is left behind if it fails.
func prepare(spec *spool.Spec, o *Options, out engine.Sink) (*session, error) {
	c, err := parseConfig(spec)
	if err != nil {
		return nil, invalid(err)
	}
	r, err := lookRunner(c)
	if err != nil {
		return nil, invalid(err)
	}
	duplex, err := transport(c, r)
	if err != nil {
		return nil, invalid(err)
	}
	l := spec.Limits
	if l.Wall < 0 || l.Idle < 0 || l.Grace < 0 || l.Pids < 0 || l.OutputBytes < 0 {
		return nil, invalid(errors.New("limits must not be negative"))
	}
	l.Wall = cmp.Or(l.Wall, o.Limits.Wall)
	l.Grace = cmp.Or(l.Grace, o.Limits.Grace)
	l.Pids = cmp.Or(l.Pids, o.Limits.Pids)
	l.OutputBytes = cmp.Or(l.OutputBytes, o.Limits.OutputBytes, process.DefaultOutputBytes)
	s := &session{
		config: c, runner: r, duplex: duplex, limits: l, cwd: spec.Cwd,
		done: make(chan struct{}), wake: make(chan struct{}, 1), leases: make(chan leased, 1),
		asks: make(map[spool.Seq]*openAsk),
	}
	askTime := duration(c.AskTimeoutMs, DefaultAskTimeout)
	if !null(c.Policy) {
		p, err := decodePolicy(c.Policy)
		if err != nil {
			return nil, invalid(err)
		}
		s.judge = policyJudge{policy: p, cwd: spec.Cwd}
		if p.Deadline > 0 && c.AskTimeoutMs == 0 {
			askTime = time.Duration(p.Deadline)
		}
	}
	s.run = shared{out: out, agent: r.name, cwd: spec.Cwd, deltas: c.Deltas, keepRaw: c.Raw, askTime: askTime,
		transport: string(ModeExec), learnt: s.learnt, asked: s.asked, withdrawn: s.withdrawn}
	if duplex {
		s.run.transport, s.run.can = string(ModeDuplex), r.can
	}
	s.idle = newTurn(&s.run, 0)
	// What the conversation does not accept should fail the start.
	open := r.exec
	if duplex {
		open = r.duplex
	}
	if _, err := open(setup{config: c, cwd: spec.Cwd, resume: c.Resume, fork: c.Fork}); err != nil {
		return nil, invalid(err)
	}
	return s, nil
}

// environment is the environment of the agent's processes. A spec that says
// nothing about it gets what every program needs: agents find their accounts
// and each other by it.
func environment(spec *spool.Spec, o *Options, c *Config, r *runner) ([]string, error) {
	policy := spec.EnvPolicy
	if policy == nil && spec.Env == nil {
		policy = &spool.EnvPolicy{Inherit: spool.InheritCore}
	}
	inherited := o.Environ
	if inherited == nil {
		inherited = os.Environ()
	}
	env, err := environ.Make(policy, inherited, spec.Env)
	if err != nil {
		return nil, err
	}
	env = environ.Filter(env, func(name string) bool { return !slices.Contains(c.DropEnv, name) })
	return environ.Default(env, r.env), nil
}

// programOf is what a run of that config executes.
func programOf(c *Config, r *runner) string {
	if r.name == ACP && len(c.Command) > 0 {
		return c.Command[0]
	}
	return first(c.Program, r.program)
}

// missing says that an agent is not there, and how to get it.
func missing(c *Config, r *runner) error {
	e := &spool.StartError{Reason: spool.StartNotFound, Err: &NotInstalled{Agent: r.name, Program: programOf(c, r), Install: r.install}}
	if r.install != "" {
		e.Hint = "install it with: " + r.install
	}
	return e
}

// checkDir says why nothing can run in a directory, if so.
func checkDir(dir string) error {
	if dir == "" {
		return nil
	}
	info, err := os.Stat(dir)
	if err == nil && !info.IsDir() {
		err = fmt.Errorf("%s is no directory", dir)
	}
	if err != nil {
		return &spool.StartError{Reason: spool.StartBadCwd, Err: err,
			Hint: "the working directory must exist on the machine that runs the agent"}
	}
	return nil
}
