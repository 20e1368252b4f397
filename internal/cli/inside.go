package cli

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// The variables that tell a process in which run it is.
const (
	envRun     = "SPOOL_RUN"         // the id of its run
	envParents = "SPOOL_RUN_PARENTS" // the ids of the runs around that run, outermost first
)

// identify gives the run an id and tells the run its id and those of the runs
// around this process. A sandbox and an empty environment stay as they are.
func identify(spec *spool.Spec) {
	if spec.ID == "" {
		spec.ID = spool.RunID(strings.ToLower(rand.Text()[:16]))
	}
	if spec.Engine == python.EngineSandbox || spec.EnvPolicy != nil && spec.EnvPolicy.Inherit == "none" {
		return
	}
	env := map[string]string{envRun: string(spec.ID)}
	if around := enclosing(); len(around) > 0 {
		env[envParents] = strings.Join(around, " ")
	}
	for name, value := range spec.Env {
		if _, ours := env[name]; !ours && name != envParents {
			env[name] = value
		}
	}
	spec.Env = env
}

// enclosing returns the ids of the runs in which this process is, outermost
// first.
func enclosing() []string {
	ids := strings.Fields(os.Getenv(envParents))
	if id := os.Getenv(envRun); id != "" {
		ids = append(ids, id)
	}
	return ids
}

// isInside reports whether this process is in a run.
func isInside(id spool.RunID) bool { return slices.Contains(enclosing(), string(id)) }

// checkNotInside returns an error if this process is in the run, whose output
// would become its own input to the log, without end.
func checkNotInside(verb string, info *spool.Info) error {
	if !isInside(info.ID) {
		return nil
	}
	return &hintedError{
		fmt.Errorf("this terminal is inside run %s: %s would print its own output without end", shownName(info), verb),
		fmt.Sprintf("%s the run from another terminal", verb),
	}
}

// checkFollow returns an error if following the run would print to the run
// itself. Following into a file or another program is allowed.
func (a *app) checkFollow(info *spool.Info) error {
	if info.State == spool.StateClosed || !isInside(info.ID) || !isTerminal(a.stdout) && !sharesOutput(a.stdout, info.Pid) {
		return nil
	}
	err := checkNotInside("follow", info)
	var hinted *hintedError
	if errors.As(err, &hinted) {
		hinted.hint += ", or send the output to a file"
	}
	return err
}

// sharesOutput reports whether a file is the stdout or stderr of a process.
func sharesOutput(f *os.File, pid int) bool {
	own, err := f.Stat()
	if err != nil {
		return false
	}
	for _, fd := range []string{"1", "2"} {
		other, err := os.Stat("/proc/" + strconv.Itoa(pid) + "/fd/" + fd)
		if err == nil && os.SameFile(own, other) {
			return true
		}
	}
	return false
}

// shownName returns the name of a run for a message, or the beginning of its id.
func shownName(info *spool.Info) string {
	if info.Name != "" {
		return plain(info.Name)
	}
	return shorten(string(info.ID))
}
