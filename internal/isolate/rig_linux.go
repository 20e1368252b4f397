//go:build amd64 || arm64

package isolate

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spool-run/spool/internal/egress"
	"github.com/spool-run/spool/internal/launch"
)

// rig has everything that attempts are made on, and makes them.
type rig struct {
	dir     string
	targets targets
	victim  *exec.Cmd
	closers []func() error
}

// rigProcesses is the limit of processes in a rig, and guestProcesses that in gVisor,
// where each costs a process and some memory outside.
const (
	rigProcesses   = 64
	guestProcesses = 8
)

// rigMemory and rigCPUs are the limits of a rig that has them.
const (
	rigMemory = 256 << 20
	rigCPUs   = 1
)

func newRig() (_ *rig, err error) {
	r := &rig{}
	defer func() {
		if err != nil {
			r.close()
		}
	}()
	if r.dir, err = makeDir(); err != nil {
		return nil, err
	}
	if r.dir, err = filepath.EvalSymlinks(r.dir); err != nil {
		return nil, err
	}
	if err := os.Chmod(r.dir, 0o711); err != nil { // runs may be another user outside
		return nil, err
	}
	r.targets = targets{Workspace: filepath.Join(r.dir, "workspace"), Outside: filepath.Join(r.dir, "outside"),
		Socket: filepath.Join(r.dir, "socket"), Abstract: "spool-" + rand.Text(), Secret: rand.Text(), Processes: rigProcesses}
	if r.targets.Kernel, err = kernelName(); err != nil {
		return nil, err
	}
	if err := r.reset(); err != nil {
		return nil, err
	}
	for _, address := range []string{r.targets.Socket, "@" + r.targets.Abstract} {
		l, err := net.Listen("unix", address)
		if err != nil {
			return nil, err
		}
		r.closers = append(r.closers, l.Close)
	}
	for _, to := range []*string{&r.targets.TCP, &r.targets.Allowed} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		r.closers = append(r.closers, l.Close)
		*to = l.Addr().String()
	}
	u, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	echoed := make(chan struct{})
	go func() {
		defer close(echoed)
		b := make([]byte, 16)
		for {
			n, from, err := u.ReadFrom(b)
			if err != nil {
				return
			}
			_, _ = u.WriteTo(b[:n], from) // an attempt that gets no reply failed
		}
	}()
	r.closers = append(r.closers, func() error { err := u.Close(); <-echoed; return err })
	r.targets.UDP = u.LocalAddr().String()
	r.victim = exec.Command(self, Role, "attempt", "wait")
	r.victim.Args[0] = "spool"
	r.victim.Env = []string{"SECRET=" + r.targets.Secret}
	if err := r.victim.Start(); err != nil {
		return nil, fmt.Errorf("start a process to be attacked: %w", err)
	}
	r.targets.Victim = r.victim.Process.Pid
	return r, nil
}

// makeDir makes the directory of a rig: not in /tmp if possible, because what is
// in a private /tmp is out of reach of the attempts.
func makeDir() (string, error) {
	const pattern = "spool-isolate-"
	if parent := cacheDir(); parent != "" && len(parent) < 70 { // the path of a socket has at most 107 bytes
		if err := os.MkdirAll(parent, 0o700); err == nil {
			if dir, err := os.MkdirTemp(parent, pattern); err == nil {
				return dir, nil
			}
		}
	}
	return os.MkdirTemp("", pattern)
}

// asItWas reports whether the directory outside of the workspace is unchanged.
func (t *targets) asItWas() bool {
	entries, err := os.ReadDir(t.Outside)
	if err != nil || len(entries) != 2 {
		return false
	}
	b, err := os.ReadFile(filepath.Join(t.Outside, "file"))
	return err == nil && string(b) == content
}

// content is that of every file in a rig.
const content = "as it was\n"

// reset makes the directories anew: an attempt may have changed them.
func (r *rig) reset() error { return r.targets.reset() }

func (t *targets) reset() error {
	for _, dir := range []string{t.Workspace, t.Outside} {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	for _, dir := range []string{filepath.Join(t.Workspace, ".git"), t.Outside} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	for _, file := range []string{filepath.Join(t.Workspace, ".git", "config"), filepath.Join(t.Outside, "file"), filepath.Join(t.Outside, "second")} {
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (r *rig) close() {
	if r.victim != nil && r.victim.Process != nil {
		_ = r.victim.Process.Kill()
		_ = r.victim.Wait()
	}
	for _, c := range r.closers {
		_ = c()
	}
	if r.dir != "" {
		_ = os.RemoveAll(r.dir)
	}
}

// survivorTime is how long a killed tree may take to end.
const survivorTime = 30 * time.Second

// forkFunc starts a program behind walls, as [syscall.ForkExec] does without.
type forkFunc func(path string, argv []string, attr *syscall.ProcAttr) (int, error)

// runOptions say behind what the attempts of a rig are made.
type runOptions struct {
	fork    forkFunc
	on      func(func())
	kill    func()
	pids    int          // limit of processes
	limited bool         // memory and processor time are, too
	whole   bool         // a run that exceeds its memory ends as a whole, so that takes another run
	wrapper string       // command of another program that isolates
	exe     string       // path of this program, for the wrapper
	gateway net.Listener // for a proxy, which allows one of the rig's addresses
}

// run makes the attempts behind walls and then kills the tree. It returns the
// attempts and the user outside that made them.
func (r *rig) run(ctx context.Context, l *launch.Launcher, o runOptions) (list []Attempt, uid int, err error) {
	t := r.targets
	if o.gateway != nil {
		rules, err := egress.ParseRules([]string{t.Allowed}, nil)
		if err != nil {
			return nil, 0, err
		}
		proxy := egress.New(egress.Options{Rules: rules})
		defer proxy.Close()
		proxy.Serve(o.gateway)
		t.Proxy = o.gateway.Addr().String()
	}
	if o.whole {
		t.Processes = guestProcesses
	}
	if o.limited {
		t.Memory, t.Whole = 2*rigMemory, o.whole
	}
	arg, err := json.Marshal(t)
	if err != nil {
		return nil, 0, err
	}
	out, in, err := os.Pipe()
	if err != nil {
		return nil, 0, err
	}
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, 0, errors.Join(err, in.Close())
	}
	defer null.Close()
	c := launch.Command{Path: self, Argv: []string{"spool", Role, "attempt", string(arg)}, Env: []string{}, Dir: r.targets.Workspace,
		Files: []uintptr{null.Fd(), in.Fd(), in.Fd()}, Pids: o.pids, Fork: o.fork, On: o.on, Kill: o.kill}
	if o.limited {
		c.Memory, c.CPUs = rigMemory, rigCPUs
	}
	if o.wrapper != "" {
		c.Path, c.Argv = "/bin/sh", []string{"sh", "-c", "exec " + o.wrapper + ` "$@"`, "sh", o.exe, Role, "attempt", string(arg)}
		c.Env = append(os.Environ(), "WORKSPACE="+r.targets.Workspace)
	}
	tree, err := l.Start(c)
	_ = in.Close()
	if err != nil {
		return nil, 0, err
	}
	uid = OwnerOf(tree.Pid())
	stop := context.AfterFunc(ctx, func() { _ = tree.Kill() })
	lines := bufio.NewScanner(out)
	var said string // by a wrapper that failed
	for lines.Scan() {
		var a Attempt
		if json.Unmarshal(lines.Bytes(), &a) != nil {
			if o.wrapper == "" {
				err = fmt.Errorf("the process that tries to escape said %q", lines.Text())
			}
			said = lines.Text()
			continue
		}
		list = append(list, a)
		if a.Guarantee == Kills {
			break
		}
	}
	stop()
	var throttled bool
	var burnErr error
	if o.limited && !o.whole {
		throttled, burnErr = throttles(ctx, l, c, null)
	}
	killErr := errors.Join(burnErr, o.end(tree))
	gone := out.SetReadDeadline(time.Now().Add(survivorTime)) == nil && allGone(out)
	killErr = errors.Join(killErr, tree.Kill())
	_, reapErr := tree.Reap()
	tree.Release()
	if err = errors.Join(err, killErr, reapErr, ctx.Err()); err != nil {
		return nil, 0, err
	}
	if n := len(list); n == 0 || list[n-1].Guarantee != Kills {
		if said != "" {
			return nil, 0, fmt.Errorf("it ended after %d attempts: %s", n, said)
		}
		return nil, 0, fmt.Errorf("the process that tries to escape ended after %d attempts", n)
	}
	if r.targets.asItWas() {
		for i, a := range list {
			if a.Guarantee == Writes && a.Escaped && a.Name != "sysctl" { // in a private directory
				list[i].Escaped, list[i].Errno = false, "no effect"
			}
		}
	}
	if o.limited && !o.whole {
		burn := Attempt{Name: "exceed-cpus", Guarantee: Processor, Escaped: !throttled}
		if throttled {
			burn.Errno = "throttled"
		}
		list = slices.Insert(list, len(list)-1, burn)
	}
	daemon := &list[len(list)-1]
	if daemon.Escaped = !gone; gone {
		daemon.Errno = "killed"
	}
	return list, uid, nil
}

// throttles starts the command of a rig once more, with so little processor time that
// it uses it up on a busy machine, too, and reports whether it has to wait.
func throttles(ctx context.Context, l *launch.Launcher, c launch.Command, null *os.File) (yes bool, err error) {
	c.Argv, c.Files = []string{"spool", Role, "attempt", "burn"}, []uintptr{null.Fd(), null.Fd(), null.Fd()}
	c.CPUs, c.Kill = burnCPUs, nil
	tree, err := l.Start(c)
	if err != nil {
		return false, err
	}
	defer func() {
		killErr := tree.Kill()
		_, reapErr := tree.Reap()
		tree.Release()
		err = errors.Join(err, killErr, reapErr)
	}()
	return waits(ctx, tree)
}

// waits reports whether a tree that uses all processor time it gets has to wait for
// more.
func waits(ctx context.Context, tree *launch.Tree) (bool, error) {
	tick := time.NewTicker(5 * time.Millisecond) // there is no event
	defer tick.Stop()
	before := tree.Throttled()
	for end := time.Now().Add(burnTime); tree.Throttled() == before; <-tick.C {
		if ctx.Err() != nil || time.Now().After(end) {
			return false, ctx.Err()
		}
	}
	return true, nil
}

// exceed has a run that ends as a whole use more processor time and then more memory
// than its limits. It starts with more processor time than the limit that is tested,
// of which gVisor needs a lot to start.
func (r *rig) exceed(ctx context.Context, l *launch.Launcher, o runOptions) ([]Attempt, error) {
	cpus, memory := Attempt{Name: "exceed-cpus", Guarantee: Processor, Escaped: true}, Attempt{Name: "exceed-memory", Guarantee: Memory, Escaped: true}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, err
	}
	defer null.Close()
	in, next, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer next.Close()
	tree, err := l.Start(launch.Command{Path: self, Argv: []string{"spool", Role, "attempt", "exceed"}, Env: []string{}, Dir: r.targets.Workspace,
		Files: []uintptr{in.Fd(), null.Fd(), null.Fd()}, Pids: o.pids, Memory: rigMemory, CPUs: rigCPUs, Fork: o.fork, On: o.on, Kill: o.kill})
	_ = in.Close()
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = tree.Kill() })
	defer stop()
	if err = tree.LimitCPUs(burnCPUs); err == nil {
		var throttled bool
		if throttled, err = waits(ctx, tree); throttled {
			cpus.Escaped, cpus.Errno = false, "throttled"
		}
	}
	err = errors.Join(err, tree.LimitCPUs(rigCPUs))
	_ = next.Close()
	status, reapErr := tree.Reap()
	kills := tree.MemoryKills()
	err = errors.Join(err, reapErr, tree.Kill(), ctx.Err())
	tree.Release()
	if kills > 0 && (!status.Exited() || status.ExitStatus() != 0) {
		memory.Escaped, memory.Errno = false, "killed"
	}
	return []Attempt{cpus, memory}, err
}

// end kills the tree, or its first process if another program is to end the rest.
func (o *runOptions) end(t *launch.Tree) error {
	if o.wrapper != "" {
		return endLeader(t)
	}
	return t.Kill()
}

// allGone waits until no process has the pipe open.
func allGone(out *os.File) bool {
	_, err := io.Copy(io.Discard, out)
	return err == nil
}

// OwnerOf returns the user of a process outside of its namespaces, zero if that is
// unknown. The owner of its directory in /proc may be another: that is root for a process
// which cannot be traced.
func OwnerOf(pid int) int {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(b)) {
		if ids, ok := strings.CutPrefix(line, "Uid:"); ok && len(strings.Fields(ids)) > 0 {
			uid, err := strconv.Atoi(strings.Fields(ids)[0])
			if err == nil {
				return uid
			}
		}
	}
	return 0
}
