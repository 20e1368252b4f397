package agents

import (
	"context"
	"errors"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"
)

// Names are the agents that have a name, in order.
func Names() []string {
	var names []string
	for name := range byName() {
		if name != agent.ACP {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// Found are the names of the agents whose programs are in PATH.
func Found() []string {
	all := byName()
	return slices.DeleteFunc(Names(), func(name string) bool {
		_, err := exec.LookPath(all[name].Program)
		return err != nil
	})
}

// versionTime is what an agent may take to tell its version: some load all of
// themselves first.
const versionTime = 20 * time.Second

// List looks for every agent in PATH and asks it for its version.
func List(ctx context.Context) []agent.Installed {
	all := byName()
	names := Names()
	list := make([]agent.Installed, len(names))
	var asking sync.WaitGroup
	for i, name := range names {
		r := all[name]
		list[i] = agent.Installed{Agent: name, Install: r.Install}
		if r.Exec != nil {
			list[i].Modes = append(list[i].Modes, agent.ModeExec)
		}
		if r.Duplex != nil {
			list[i].Modes = append(list[i].Modes, agent.ModeDuplex)
			list[i].Capabilities = r.Capabilities
		}
		asking.Go(func() { look(ctx, &list[i], r.Program) })
	}
	asking.Wait()
	return list
}

// Capabilities are what can be done with the turns of an agent that is run as the config
// says, as [agent.Started] has them: before it runs, so without what only the agent knows.
func Capabilities(c *agent.Config) []string {
	r, err := lookAgent(c)
	if err != nil {
		return nil
	}
	if duplex, err := transport(c, r); err != nil || !duplex {
		return nil
	}
	return slices.Clone(r.Capabilities)
}

// look finds the program of an agent.
func look(ctx context.Context, l *agent.Installed, program string) {
	path, err := exec.LookPath(program)
	if err != nil {
		if !errors.Is(err, exec.ErrNotFound) {
			l.Error = err.Error()
		}
		return
	}
	l.Path = path
	ctx, cancel := context.WithTimeout(ctx, versionTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		l.Error = "ask for the version: " + err.Error()
		return
	}
	l.Version = versionNumber(string(out))
}

var version = talk.Lazily(`\d+\.\d+[^\s,;)]*`)

// versionNumber finds the version in what an agent says about itself.
func versionNumber(text string) string {
	if v := version().FindString(text); v != "" {
		return v
	}
	return talk.Title(strings.TrimSpace(text))
}
