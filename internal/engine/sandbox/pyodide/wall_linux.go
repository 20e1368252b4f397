//go:build amd64 || arm64

package pyodide

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/python"
)

// Wall implements [guest.Backend]. What it returns is proven by a process in the place
// of Node, without the filter that forked interpreters have beyond that.
func (b *Backend) Wall(ctx context.Context, s guest.Setup) (guest.Wall, error) {
	b.mu.Lock()
	if b.closed {
		b.mu.Unlock()
		return guest.Wall{}, errClosed
	}
	if b.walls == nil {
		b.walls = make(map[bool]guest.Wall)
	}
	none := s.Isolation == python.IsolateNone
	w, ok := b.walls[none]
	b.mu.Unlock()
	if ok {
		return w, nil
	}
	proof, err := b.prove(ctx, none)
	if err != nil {
		return guest.Wall{}, err
	}
	w = guest.Wall{Mechanism: proof.Mechanism, Guarantees: proof.Has.Strings(), Why: make(map[string]string)}
	for g, why := range proof.Why {
		w.Why[string(g)] = why
	}
	b.mu.Lock()
	b.walls[none] = w
	b.mu.Unlock()
	return w, nil
}

// prove returns what the cell of interpreters gives, or why it must not be used.
func (b *Backend) prove(ctx context.Context, none bool) (isolate.CellProof, error) {
	cell, err := b.cell(ctx)
	if err != nil {
		return isolate.CellProof{}, err
	}
	p, err := cell.Proof(ctx)
	if err == nil && p.Mechanism == isolate.Filter && !none {
		err = fmt.Errorf("this machine cannot protect its files: %w", b.noNamespaces(p))
	}
	return p, err
}

// noNamespaces is why a cell has none.
func (b *Backend) noNamespaces(p isolate.CellProof) error {
	if b.opts.NoNamespaces {
		return fmt.Errorf("%w: switched off by an option", errNoNamespaces)
	}
	var causes []string
	for _, c := range p.Causes {
		causes = append(causes, c.Mechanism+": "+c.Text)
	}
	return fmt.Errorf("%w: %s", errNoNamespaces, strings.Join(causes, "; "))
}

// errNoNamespaces means that interpreters have no namespaces of their own.
var errNoNamespaces = errors.New("no namespaces")

// cell returns the cell of the process that tries to escape. Those of interpreters have
// the same wall.
func (b *Backend) cell(ctx context.Context) (*isolate.Cell, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.pattern == nil {
		o, err := b.cellOptions(ctx)
		if err != nil {
			return nil, err
		}
		b.pattern = isolate.NewCell(o)
	}
	return b.pattern, nil
}

func (b *Backend) cellOptions(ctx context.Context) (o isolate.CellOptions, err error) {
	exe := b.opts.Self
	if exe == "/proc/self/exe" {
		if exe, err = os.Executable(); err != nil {
			return o, err
		}
	}
	libs, err := libraries(ctx, exe)
	if err != nil {
		return o, err
	}
	o = isolate.CellOptions{Name: Name, Places: programPlaces(exe, libs), Attempt: func(arg string) (string, []string) {
		return b.opts.Self, []string{"spool", Role, verbHold, arg}
	}}
	if b.opts.NoNamespaces {
		o.Without = []string{isolate.Namespaces}
	}
	return o, nil
}

// hold is the life of a process in the place of the supervisor, which starts one in the
// place of Node that tries to escape, and seals it when it asks for it.
func hold(arg string) error {
	runtime.LockOSThread() // without namespaces the end of the thread would end the other process
	exe, err := os.Executable()
	if err != nil {
		return err
	}
	in, err := isolate.Enter()
	if err != nil {
		return err
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return err
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0) // under the race detector it complains that there is no /proc
	if err != nil {
		return err
	}
	pid, err := in.Fork(in.Path(isolate.Place{From: exe, To: guestNode}), []string{"spool", Role, verbTry, arg},
		&syscall.ProcAttr{Dir: "/", Env: []string{}, Files: []uintptr{null.Fd(), 1, null.Fd(), theirs.Fd()}, Sys: &syscall.SysProcAttr{Setsid: true}}, outerFilter())
	if err != nil {
		return fmt.Errorf("start the process that tries to escape: %w", err)
	}
	_ = theirs.Close()
	go func() {
		in.Await()
		_ = unix.Kill(pid, unix.SIGKILL)
		os.Exit(0)
	}()
	if _, err := ours.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("wait for the process that tries to escape: %w", err)
	}
	if err := noProcesses(pid); err != nil {
		return err
	}
	if _, err := ours.Write([]byte{0}); err != nil {
		return err
	}
	_, err = waitFor(pid)
	return err
}

// try is the life of a process that tries to escape.
func try(arg string) error {
	// There are no new threads once it is sealed, and Go needs some.
	var threads sync.WaitGroup
	for range tryThreads {
		threads.Go(func() { _ = unix.Nanosleep(&unix.Timespec{Nsec: 20e6}, nil) })
	}
	threads.Wait()
	os.Exit(isolate.TryCell(arg, askForSeal))
	return nil
}

// tryThreads is how many threads a process that tries to escape makes ahead.
const tryThreads = 16

// askForSeal has the holder take from this process what it only needed to start.
func askForSeal() error {
	conn := os.NewFile(fdRunner, "connection")
	if _, err := conn.Write([]byte{0}); err != nil {
		return fmt.Errorf("ask for the seal: %w", err)
	}
	if _, err := conn.Read(make([]byte, 1)); err != nil {
		return fmt.Errorf("it was not sealed: %w", err)
	}
	return nil
}
