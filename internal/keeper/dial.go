package keeper

import (
	"context"
	"encoding/json"
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
	"sync"
	"syscall"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/flock"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// addressPrefix marks the address of a host that is a keeper.
const addressPrefix = "keeper:"

// startIn bounds how long a new keeper may take to listen.
const startIn = 10 * time.Second

// Environ is the environment of a keeper: it must not hold on to the secrets of
// whoever happened to start it.
func Environ() []string {
	// Goroutines that are many, short-lived and alike need not all grow their
	// stacks.
	env := []string{"GODEBUG=adaptivestackstart=1"}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "LANG", "XDG_CACHE_HOME", "GOTRACEBACK"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// Command starts a keeper process for a state directory. What it is given as
// its standard output it must close, or write to, once it listens.
type Command func(dir string) *exec.Cmd

// link is a connection to one keeper.
type link struct {
	transport *transport
	owner     string
	hello     helloResult

	mu       sync.Mutex
	expected map[spool.RunID]*expectation
	gone     bool
}

func (l *link) alive() bool {
	select {
	case <-l.transport.rpc.Done():
		return false
	default:
		return true
	}
}

// call makes a request. A lost keeper is [rpc.ErrConnClosed].
func (l *link) call(ctx context.Context, method string, params, result any) error {
	return runproto.DecodeError(l.transport.rpc.Call(ctx, method, params, result))
}

// start asks for a run.
func (l *link) start(ctx context.Context, p record.Start, info *spool.Info) error {
	b, err := l.transport.start(ctx, func(dst []byte) ([]byte, error) { return record.AppendStart(dst, &p) })
	if err != nil {
		return runproto.DecodeError(err)
	}
	if *info, err = record.DecodeInfo(b); err != nil {
		return fmt.Errorf("keeper %s: %w", l.owner, err)
	}
	return nil
}

// Malformed implements [rpc.Handler].
func (l *link) Malformed(err error) error { return err }

// Notification implements [rpc.Handler]: that would be of a newer keeper.
func (l *link) Notification(string, json.RawMessage) error { return nil }

// Request implements [rpc.Handler]: a keeper asks nothing.
func (l *link) Request(r *rpc.Request) {
	r.Reply(nil, rpc.Errorf(rpc.CodeMethodNotFound, "unknown method %s", r.Method))
}

// dial connects to the keeper that an owner is.
func (b *Backend) dial(ctx context.Context, o host.Owner) (*link, error) {
	path, ok := strings.CutPrefix(o.Address, addressPrefix)
	if !ok {
		return nil, fmt.Errorf("%w: host %s (pid %d) is no keeper", spool.ErrUnsupported, o.ID, o.Pid)
	}
	nc, err := new(net.Dialer).DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("connect to keeper %s: %w", o.ID, err)
	}
	if err := checkPeer(nc); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to keeper %s: %w", o.ID, err), nc.Close())
	}
	t, err := dialTransport(nc, "keeper "+o.ID, o.Build == b.opts.Build)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("connect to keeper %s: %w", o.ID, err), nc.Close())
	}
	l := &link{transport: t, owner: o.ID, expected: make(map[spool.RunID]*expectation)}
	stop := context.AfterFunc(b.ctx, func() { _ = l.transport.close() })
	b.wg.Go(func() {
		defer stop()
		t.serve(b.ctx, l) // calls return the error
		l.disappoint()
	})
	if err := l.call(ctx, methodHello, struct{}{}, &l.hello); err != nil {
		return nil, errors.Join(fmt.Errorf("connect to keeper %s: %w", o.ID, err), l.transport.close())
	}
	return l, nil
}

// start starts a keeper and waits until it listens.
func (b *Backend) start(ctx context.Context) error {
	cmd := b.opts.Keeper(b.opts.Dir)
	r, w, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start keeper: %w", err)
	}
	defer r.Close()
	cmd.Stdout = w
	if cmd.Dir == "" {
		cmd.Dir = "/" // it outlives whatever directory we are in
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	}
	log, err := os.OpenFile(filepath.Join(b.opts.Dir, "keeper.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return errors.Join(fmt.Errorf("start keeper: %w", err), w.Close())
	}
	cmd.Stderr = log
	err = cmd.Start()
	_ = w.Close()
	_ = log.Close()
	if err != nil {
		return fmt.Errorf("start keeper: %w", err)
	}
	b.reap(cmd.Process)

	ready := make(chan error, 1)
	go func() {
		said, err := io.ReadAll(io.LimitReader(r, 4096))
		if err == nil && strings.TrimSpace(string(said)) != ReadyText {
			err = fmt.Errorf("it said %q; see %s", said, log.Name())
		}
		ready <- err
	}()
	select {
	case err = <-ready:
	case <-time.After(startIn):
		err = errors.New("it does not listen")
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("start keeper: %w", err)
	}
	return nil
}

// reap remembers a keeper that this process started, and collects those that
// have ended meanwhile. Nobody waits for them: they may well outlive us.
func (b *Backend) reap(started *os.Process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if started != nil {
		b.children = append(b.children, started.Pid)
		_ = started.Release() // the pid is ours until we collect it
	}
	b.children = slices.DeleteFunc(b.children, func(pid int) bool {
		got, err := syscall.Wait4(pid, nil, syscall.WNOHANG, nil)
		return got == pid || err != nil
	})
}

// ReadyText is what a keeper says on its standard output before it closes it.
const ReadyText = "ready"

// current returns a connection to the keeper that takes new runs: the one of
// our own build, started if there is none.
func (b *Backend) current(ctx context.Context) (*link, error) {
	b.mu.Lock()
	l := b.mine
	b.mu.Unlock()
	if l != nil && l.alive() {
		return l, nil
	}
	// One at a time over all processes, so that one keeper is started.
	lock, err := flock.Open(context.WithoutCancel(ctx), filepath.Join(b.opts.Dir, "keeper.lock"))
	if err != nil {
		return nil, fmt.Errorf("find keeper: %w", err)
	}
	defer lock.Close()
	b.mu.Lock()
	l = b.mine
	b.mu.Unlock()
	if l != nil && l.alive() {
		return l, nil
	}
	if l, err = b.find(ctx); err == nil && l == nil {
		if err = b.start(ctx); err == nil {
			l, err = b.find(ctx)
		}
	}
	if err == nil && l == nil {
		err = errors.New("the keeper that was started is not there")
	}
	if err != nil {
		return nil, fmt.Errorf("find keeper: %w", err)
	}
	l = b.enter(l)
	b.mu.Lock()
	b.mine = l
	b.mu.Unlock()
	return l, nil
}

// enter makes a connection the one to its keeper, unless there is one.
func (b *Backend) enter(l *link) *link {
	b.mu.Lock()
	other := b.links[l.owner]
	if other == nil || !other.alive() {
		b.links[l.owner] = l
		other = l
	}
	b.mu.Unlock()
	if other != l {
		_ = l.transport.close()
	}
	return other
}

// find looks for a living keeper of our build.
func (b *Backend) find(ctx context.Context) (*link, error) {
	owners, err := host.Owners(b.opts.Dir)
	if err != nil {
		return nil, err
	}
	for _, o := range owners {
		if o.Build != b.opts.Build || !strings.HasPrefix(o.Address, addressPrefix) {
			continue
		}
		l, err := b.dial(ctx, o)
		switch {
		case err != nil: // it is about to leave
		case l.hello.Protocol != Protocol: // another program of that name
			_ = l.transport.close()
		default:
			return l, nil
		}
	}
	return nil, nil
}

// to returns a connection to the keeper that owns a run.
func (b *Backend) to(ctx context.Context, owner string) (*link, error) {
	b.mu.Lock()
	l := b.links[owner]
	b.mu.Unlock()
	if l != nil && l.alive() {
		return l, nil
	}
	o, err := host.LookupOwner(b.opts.Dir, owner)
	if err != nil {
		return nil, err
	}
	if l, err = b.dial(ctx, o); err != nil {
		return nil, err
	}
	return b.enter(l), nil
}

// isGone reports whether an error means that a host is not there.
func isGone(err error) bool {
	if runproto.Answered(err) {
		return false
	}
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, rpc.ErrConnClosed) ||
		errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE)
}
