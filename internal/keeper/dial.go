package keeper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/flock"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/peer"
	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// addressPrefix begins the address of a host that is a keeper.
const addressPrefix = "keeper:"

// startTimeout is how long a new keeper may take to listen, also on a busy machine.
const startTimeout = 30 * time.Second

// Environ returns the environment of a keeper. It leaves out all variables that
// may hold secrets of the process that starts the keeper.
func Environ() []string {
	// The keeper runs many short goroutines: start them with stacks of the
	// average size, so that they need not grow.
	env := []string{"GODEBUG=adaptivestackstart=1"}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "LANG", "XDG_CACHE_HOME", "GOTRACEBACK"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// Command returns the command that starts a keeper for a state directory. The
// keeper must write [ReadyText] to its standard output and close it once it
// listens.
type Command func(dir string) *exec.Cmd

// dialKeeper connects to a keeper.
func (b *Backend) dialKeeper(ctx context.Context, o host.Owner) (*keeperConn, error) {
	path, ok := strings.CutPrefix(o.Address, addressPrefix)
	if !ok {
		return nil, fmt.Errorf("%w: host %s (pid %d) is not a keeper", spool.ErrUnsupported, o.ID, o.Pid)
	}
	nc, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("connect to keeper %s: %w", o.ID, err)
	}
	if _, err := peer.Check(nc); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to keeper %s: %w", o.ID, err), nc.Close())
	}
	t, err := dialTransport(nc, "keeper "+o.ID, o.Build == b.opts.Build)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to keeper %s: %w", o.ID, err), nc.Close())
	}
	k := &keeperConn{transport: t, owner: o.ID}
	stop := context.AfterFunc(b.ctx, func() { _ = t.close() })
	b.wg.Go(func() {
		defer stop()
		k.serve(b.ctx)
	})
	if err := k.call(ctx, methodHello, struct{}{}, &k.hello); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to keeper %s: %w", o.ID, err), t.close())
	}
	return k, nil
}

// startKeeper starts a keeper and waits until it listens.
func (b *Backend) startKeeper(ctx context.Context) error {
	cmd := b.opts.Keeper(b.opts.Dir)
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start keeper: %w", err)
	}
	defer r.Close()
	cmd.Stdout = w
	if cmd.Dir == "" {
		cmd.Dir = "/" // it may outlive our working directory
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
	log, err := os.OpenFile(filepath.Join(b.opts.Dir, "keeper.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return errors.Join(fmt.Errorf("start keeper: %w", err), w.Close())
	}
	cmd.Stderr = log
	before, _ := log.Seek(0, io.SeekEnd) // of a file that is only appended to
	err = cmd.Start()
	_ = w.Close()
	_ = log.Close()
	if err != nil {
		return fmt.Errorf("start keeper: %w", err)
	}
	pid := cmd.Process.Pid
	b.reap(cmd.Process)

	ready := make(chan error, 1)
	go func() {
		out, err := io.ReadAll(io.LimitReader(r, 4096))
		if err == nil && strings.TrimSpace(string(out)) != ReadyText {
			err = failedStart(log.Name(), before, pid, string(out))
		}
		ready <- err
	}()
	select {
	case err = <-ready:
	case <-time.After(startTimeout):
		err = fmt.Errorf("it does not listen after %v; see %s", startTimeout, log.Name())
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("start keeper: %w", err)
	}
	return nil
}

// failedStart returns why a keeper ended before it listened: the last line that it
// wrote to its log, which had that size before, or else what it printed.
func failedStart(log string, size int64, pid int, printed string) error {
	if f, err := os.Open(log); err == nil {
		defer f.Close()
		text, _ := io.ReadAll(io.NewSectionReader(f, size, maxCause))
		mark := fmt.Sprintf("(pid %d): ", pid) // other keepers share the log
		for _, line := range slices.Backward(strings.Split(strings.TrimSpace(string(text)), "\n")) {
			if _, cause, ok := strings.Cut(line, mark); ok {
				return errors.New(strings.TrimPrefix(cause, "keeper: "))
			}
		}
	}
	return fmt.Errorf("it printed %q instead of %q; see %s", printed, ReadyText, log)
}

// maxCause bounds how much of its log is searched for why a keeper did not start.
const maxCause = 64 << 10

// reap remembers a keeper that this process has started, if it is not nil, and
// reaps those that have ended. No goroutine waits for them: they may outlive
// this process.
func (b *Backend) reap(started *os.Process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if started != nil {
		b.children = append(b.children, started.Pid)
		_ = started.Release() // the pid stays ours until we reap it
	}
	b.children = slices.DeleteFunc(b.children, func(pid int) bool {
		got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		return got == pid || err != nil
	})
}

// ReadyText is what a keeper prints on its standard output once it listens.
const ReadyText = "ready"

// startAttempts limits how often ownKeeper starts a keeper. One that is idle before
// this process connects, because the machine is slow or was suspended, has ended.
const startAttempts = 3

// ownKeeper returns a connection to the keeper of our own build, which starts
// new runs. It starts that keeper if there is none.
func (b *Backend) ownKeeper(ctx context.Context) (*keeperConn, error) {
	b.mu.Lock()
	k := b.own
	b.mu.Unlock()
	if k != nil && k.alive() {
		return k, nil
	}
	// The lock is held against all processes: only one starts a keeper.
	lock, err := flock.Open(context.WithoutCancel(ctx), filepath.Join(b.opts.Dir, "keeper.lock"))
	if err != nil {
		return nil, fmt.Errorf("find keeper: %w", err)
	}
	defer lock.Close()
	b.mu.Lock()
	k = b.own
	b.mu.Unlock()
	if k != nil && k.alive() {
		return k, nil
	}
	k, err = b.findKeeper(ctx)
	for i := 0; i < startAttempts && err == nil && k == nil; i++ {
		if err = b.startKeeper(ctx); err == nil {
			k, err = b.findKeeper(ctx)
		}
	}
	if err == nil && k == nil {
		err = errors.New("the keeper exited right after its start")
	}
	if err != nil {
		return nil, fmt.Errorf("find keeper: %w", err)
	}
	k = b.addKeeper(k)
	b.mu.Lock()
	b.own = k
	close(b.came)
	b.came = make(chan struct{})
	b.mu.Unlock()
	return k, nil
}

// nextKeeper returns a channel that is closed when this process has another keeper for
// the runs that it starts.
func (b *Backend) nextKeeper() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.came
}

// addKeeper registers a connection to a keeper. If there is one already, it
// closes the new one and returns the other.
func (b *Backend) addKeeper(k *keeperConn) *keeperConn {
	b.mu.Lock()
	known := b.keepers[k.owner]
	if known == nil || !known.alive() {
		b.keepers[k.owner] = k
		known = k
	}
	b.mu.Unlock()
	if known != k {
		_ = k.transport.close()
	}
	return known
}

// findKeeper connects to a living keeper of our build. It returns nil if there
// is none.
func (b *Backend) findKeeper(ctx context.Context) (*keeperConn, error) {
	owners, err := host.Owners(b.opts.Dir)
	if err != nil {
		return nil, err
	}
	for _, o := range owners {
		if o.Build != b.opts.Build || !strings.HasPrefix(o.Address, addressPrefix) {
			continue
		}
		k, err := b.dialKeeper(ctx, o)
		switch {
		case err != nil: // it is about to end
		case k.hello.Protocol != Protocol: // a different build with the same name
			_ = k.transport.close()
		default:
			return k, nil
		}
	}
	return nil, nil
}

// keeperOf returns a connection to the keeper with an owner id.
func (b *Backend) keeperOf(ctx context.Context, owner string) (*keeperConn, error) {
	b.mu.Lock()
	k := b.keepers[owner]
	b.mu.Unlock()
	if k != nil && k.alive() {
		return k, nil
	}
	o, err := host.LookupOwner(b.opts.Dir, owner)
	if err != nil {
		return nil, err
	}
	if k, err = b.dialKeeper(ctx, o); err != nil {
		return nil, err
	}
	return b.addKeeper(k), nil
}

// isGone reports whether an error means that a keeper is gone.
func isGone(err error) bool {
	if runproto.Answered(err) {
		return false
	}
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, rpc.ErrConnClosed) ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
