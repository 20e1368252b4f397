//go:build amd64 || arm64

package isolate

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/launch"
)

// Suite makes the attempts without isolation, in each profile, and in each command
// of against: a shell command that the program which makes the attempts is
// appended to, with the directory that may be written to in $WORKSPACE. It calls
// each with every result.
func Suite(ctx context.Context, against []string, each func(Result) error) (err error) {
	l, err := launch.New(launch.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	m := New(l)
	defer m.Close()
	r, err := newRig()
	if err != nil {
		return fmt.Errorf("prepare the attempts: %w", err)
	}
	defer r.close()
	plain := Result{Name: string(None)}
	if plain.Attempts, _, err = r.run(ctx, l, runOptions{}); err != nil {
		return fmt.Errorf("make the attempts without isolation: %w", err)
	}
	if err := each(plain); err != nil {
		return err
	}
	for _, profile := range Profiles {
		result, err := m.attempt(ctx, r, profile)
		if err != nil {
			return fmt.Errorf("make the attempts in profile %s: %w", profile, err)
		}
		if err := each(result); err != nil {
			return err
		}
	}
	for _, command := range against {
		result, err := r.against(ctx, l, command)
		if err != nil {
			return fmt.Errorf("make the attempts in %q: %w", command, err)
		}
		if err := each(result); err != nil {
			return err
		}
	}
	return nil
}

// attempt makes the attempts in a profile. Those against guarantees that the profile
// does not have are left out.
func (m *Sandboxes) attempt(ctx context.Context, r *rig, profile Profile) (Result, error) {
	result := Result{Name: string(profile)}
	if err := r.reset(); err != nil {
		return result, err
	}
	request := &spool.Isolation{Profile: string(profile)}
	if profile.Guarantees().Has(Protects) {
		request.Protected = []string{".git", ".missing"}
	}
	var limited Set
	if profile == Strict {
		if exe, err := os.Executable(); err == nil {
			request.Readable = []string{exe}
		}
		if m.launcher.TryLimits(rigMemory, rigCPUs) == nil {
			limited = NewSet(Memory, Processor)
		}
	}
	lease, err := m.prepareLimited(request, r.targets.Workspace, rigProcesses, "", nil, limited)
	if err != nil {
		var refusal *Refusal
		if errors.As(err, &refusal) {
			if waive := NewSet(Narrow); len(refusal.Missing.Without(waive)) == 0 { // the rest can be tested
				request.Waive = waive.Strings()
				result.Name += " " + waivers(waive)
				lease, err = m.prepareLimited(request, r.targets.Workspace, rigProcesses, "", nil, limited)
			}
		}
		switch {
		case err == nil: // the attempts follow
		case errors.As(err, &refusal):
			result.Refused, result.Fix = refusal.Error(), refusal.Hint()
			return result, nil
		default:
			return result, err
		}
	}
	defer func() { lease.Release() }()
	result.Mechanism = lease.Isolation().Mechanism
	o := runOptions{fork: lease.Fork, on: lease.in.on(), kill: lease.Kill, limited: len(limited) > 0, whole: lease.wall.whole(), gateway: lease.in.gateway()}
	if o.whole {
		lease.limits.processes = guestProcesses
	}
	if m.launcher.Guarantees().Pids && !lease.wall.limits() {
		o.pids = rigProcesses
	}
	list, _, err := r.run(ctx, m.launcher, o)
	if err == nil && o.limited && o.whole {
		next, err := m.prepareLimited(request, r.targets.Workspace, rigProcesses, "", nil, limited)
		if err != nil {
			return result, err
		}
		lease.Release()
		lease = next
		o.fork, o.on, o.kill = lease.Fork, lease.in.on(), lease.Kill
		a, err := r.exceed(ctx, m.launcher, o)
		if err != nil {
			return result, err
		}
		list = append(list, a...)
	}
	waived, _ := ParseSet(request.Waive) // names of guarantees
	for _, a := range list {
		if profile.Guarantees().Without(waived).Has(a.Guarantee) {
			result.Attempts = append(result.Attempts, a)
		}
	}
	return result, err
}

// against makes the attempts in another program's isolation.
func (r *rig) against(ctx context.Context, l *launch.Launcher, command string) (Result, error) {
	result := Result{Name: command}
	if err := r.reset(); err != nil {
		return result, err
	}
	exe, err := os.Executable()
	if err != nil {
		return result, err
	}
	result.Attempts, _, err = r.run(ctx, l, runOptions{wrapper: command, exe: exe})
	if err != nil {
		result.Refused, err = err.Error(), ctx.Err()
	}
	return result, err
}

// endLeader kills only the first process of a tree, as another program's user
// would.
func endLeader(t *launch.Tree) error {
	if err := unix.Kill(t.Pid(), unix.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	return nil
}
