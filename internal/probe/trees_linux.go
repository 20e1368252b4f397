package probe

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/spool-run/spool/internal/launch"
)

const (
	processLimit = 64       // of a child that needs fewer
	memoryLimit  = 64 << 20 // of a child that uses more
	eaten        = 4 * memoryLimit
	killTime     = 20 * time.Second // until the processes of a tree have ended
)

// TryTrees has a child start a process that leaves a grandchild in a session of
// its own, without a parent, and kill both the way that mode says. With control
// groups it also starts processes with a limit that they exceed.
func TryTrees(ctx context.Context, mode launch.TreeMode) (Trees, error) {
	cmd := command(ctx, "trees", string(mode))
	// It ends by itself, soon, and must remove its control groups before.
	cmd.Cancel = func() error { return nil }
	cmd.WaitDelay = 2 * killTime
	var found Trees
	err := ask(cmd, &found)
	return found, err
}

// treesTask runs in a process of its own: a launcher may make its process the
// reaper of orphans, for ever.
func treesTask(args []string) (_ any, err error) {
	if len(args) != 1 {
		return nil, errors.New("usage: trees mode")
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	l, err := launch.New(launch.Options{Mode: launch.TreeMode(args[0])})
	if err != nil {
		return nil, failed(cause(err), "%s", firstStep(err))
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	found := Trees{Kill: l.Guarantees().Kill}
	if err := killTree(l); err != nil {
		return nil, failed(err, "kill a process tree")
	}
	found.NoProcessLimit = text(limitProcesses(l))
	found.NoMemoryLimit = text(limitMemory(l))
	return found, nil
}

// firstStep returns the text of an error without its errno.
func firstStep(err error) string {
	s := err.Error()
	if end := ": " + cause(err).Error(); len(s) > len(end) && s[len(s)-len(end):] == end {
		return s[:len(s)-len(end)]
	}
	return "start the launcher"
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// start starts a task in a tree of its own.
func start(l *launch.Launcher, pids int, task string, args ...string) (*launch.Tree, *os.File, error) {
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, nil, err
	}
	defer null.Close()
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	tree, err := l.Start(launch.Command{
		Path: self, Argv: append([]string{"spool", Role, task}, args...), Env: os.Environ(), Pids: pids,
		Files: []uintptr{null.Fd(), w.Fd(), null.Fd()},
	})
	_ = w.Close()
	if err != nil {
		_ = r.Close()
		return nil, nil, err
	}
	_ = r.SetReadDeadline(time.Now().Add(killTime)) // pipes have deadlines
	return tree, r, nil
}

// killTree kills a leader and an orphan. Both hold the pipe, which ends when both
// have.
func killTree(l *launch.Launcher) error {
	tree, r, err := start(l, 0, "leader")
	if err != nil {
		return err
	}
	defer r.Close()
	line, readErr := bufio.NewReader(r).ReadString('\n')
	err = tree.Kill()
	_, reapErr := tree.Reap()
	if err == nil && (readErr != nil || line != ready+"\n") {
		err = fmt.Errorf("the process tree did not start: %q, %w", line, readErr)
	}
	if err == nil {
		if _, err = io.Copy(io.Discard, r); err != nil {
			err = errors.New("a process outlives it")
		}
	}
	tree.Release()
	return errors.Join(err, reapErr)
}

// ready is what leader says once all processes run.
const ready = "ready"

// leaderTask starts an orphan and waits to be killed.
func leaderTask([]string) (any, error) {
	cmd := exec.Command(self, Role, "orphan")
	cmd.Args[0] = "spool"
	cmd.Stdout = os.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Run(); err != nil { // it exits without its child
		return nil, err
	}
	if _, err := fmt.Println(ready); err != nil {
		return nil, err
	}
	return waitTask(nil)
}

// orphanTask starts a process in another session and ends without it. It writes
// no answer.
func orphanTask([]string) (any, error) {
	cmd := exec.Command(self, Role, "wait")
	cmd.Args[0] = "spool"
	cmd.Stdout = os.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	os.Exit(0)
	return nil, nil
}

// limitProcesses starts a child twice: with a limit that it keeps, and with one
// that leaves its runtime no second thread.
func limitProcesses(l *launch.Launcher) error {
	if !l.Guarantees().Pids {
		return launch.ErrNoPidsLimit
	}
	for _, limit := range []int{processLimit, 1} {
		tree, r, err := start(l, limit, "nothing")
		if err != nil {
			return err
		}
		answerErr := decode(r, nil)
		_ = r.Close()
		_, err = tree.Reap()
		tree.Release()
		switch {
		case err != nil:
			return err
		case limit == 1 && answerErr == nil:
			return errors.New("a process with a limit of one thread has more")
		case limit > 1 && answerErr != nil:
			return fmt.Errorf("a process with a limit of %d does not run: %w", limit, answerErr)
		}
	}
	return nil
}

// limitMemory starts a child that uses more memory than it may.
func limitMemory(l *launch.Launcher) error {
	group, err := l.MemoryGroup(memoryLimit)
	if err != nil {
		return err
	}
	tree, r, err := start(l, 0, "eat", group.Tasks())
	if err != nil {
		return errors.Join(err, group.Close())
	}
	answerErr := decode(r, nil)
	_ = r.Close()
	if answerErr == nil {
		err = fmt.Errorf("a process with a limit of %d MiB used %d MiB", memoryLimit>>20, eaten>>20)
	} else if group.Kills() == 0 {
		err = answerErr
	}
	killErr := tree.Kill()
	_, reapErr := tree.Reap()
	tree.Release()
	return errors.Join(err, killErr, reapErr, group.Close())
}

// eatTask enters a memory group and uses more than its limit.
func eatTask(args []string) (any, error) {
	if len(args) != 1 {
		return nil, errors.New("usage: eat tasks")
	}
	// The memory of a process is that of its first thread's group.
	if err := os.WriteFile(args[0], strconv.AppendInt(nil, int64(os.Getpid()), 10), 0); err != nil {
		return nil, failed(cause(err), "enter the memory group")
	}
	memory := make([]byte, eaten)
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	return nil, nil
}
