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

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/agents/policy"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/environ"
	"github.com/spool-run/spool/internal/launch"
	"github.com/spool-run/spool/internal/limits"
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

// DefaultDir returns the directory that an empty [Options.Dir] means: one in the
// user's cache, or in the system's directory for temporary files if the user has
// no cache. [New] refuses it unless it is private to the user.
func DefaultDir() string {
	dir, err := os.UserCacheDir()
	if err != nil {
		return filepath.Join(os.TempDir(), "spool-agents-"+strconv.Itoa(os.Getuid()))
	}
	return filepath.Join(dir, "spool", "agents")
}

func invalid(err error) error {
	return &spool.StartError{Reason: engine.StartInvalid, Err: err}
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

// lookAgent finds the agent that a config names.
func lookAgent(c *agent.Config) (*talk.Agent, error) {
	all := byName()
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
func transport(c *agent.Config, r *talk.Agent) (duplex bool, err error) {
	switch {
	case c.Mode == agent.ModeExec && r.Exec == nil, c.Mode == agent.ModeDuplex && r.Duplex == nil:
		return false, fmt.Errorf("%s has no %s mode", r.Name, c.Mode)
	case c.Mode == agent.ModeExec || r.Duplex == nil:
		return false, nil
	}
	if c.Mode == agent.ModeAuto && r.Exec != nil {
		// Not everything that can be asked for can be had both ways.
		if _, err := r.Duplex(talk.Setup{Config: c, Resume: c.Resume, Fork: c.Fork}); errors.Is(err, spool.ErrUnsupported) {
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
	r, err := lookAgent(c)
	if err != nil {
		return nil, invalid(err)
	}
	duplex, err := transport(c, r)
	if err != nil {
		return nil, invalid(err)
	}
	if err := limits.Check(&spec.Limits); err != nil {
		return nil, invalid(err)
	}
	ours := o.Limits
	ours.Idle = 0 // only a spec sets it
	l := limits.Merge(spec.Limits, ours, spool.Limits{OutputBytes: limits.DefaultOutputBytes})
	if c.Policy != nil {
		if err := policy.Check(c.Policy); err != nil {
			return nil, invalid(err)
		}
	}
	// What the conversation does not accept should fail the start.
	open := r.Exec
	if duplex {
		open = r.Duplex
	}
	if _, err := open(talk.Setup{Config: c, Cwd: spec.Cwd, Resume: c.Resume, Fork: c.Fork}); err != nil {
		return nil, invalid(err)
	}
	return newSession(c, r, duplex, spec, l, out), nil
}

// environment is the environment of the agent's processes. A spec that says
// nothing about it gets what every program needs: agents find their accounts
// and each other by it.
func environment(spec *spool.Spec, o *Options, c *agent.Config, r *talk.Agent) ([]string, error) {
	policy := spec.EnvPolicy
	if policy == nil && spec.Env == nil {
		policy = &spool.EnvPolicy{Inherit: "core"}
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
	return environ.Default(env, r.Env), nil
}

// programOf is what a run of that config executes.
func programOf(c *agent.Config, r *talk.Agent) string {
	if r.Name == agent.ACP && len(c.Command) > 0 {
		return c.Command[0]
	}
	return cmp.Or(c.Program, r.Program)
}

// missing says that an agent is not there, and how to get it.
func missing(c *agent.Config, r *talk.Agent) error {
	e := &spool.StartError{Reason: engine.StartNotFound, Err: &NotInstalled{Agent: r.Name, Program: programOf(c, r), Install: r.Install}}
	if r.Install != "" {
		e.Hint = "install it with: " + r.Install
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
		return &spool.StartError{Reason: engine.StartBadCwd, Err: err,
			Hint: "the working directory must exist on the machine that runs the agent"}
	}
	return nil
}
