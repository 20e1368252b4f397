package cli

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// notifyJobs returns the signals with which a shell stops and continues this
// process, if it shows something that must be removed before.
func (c *conversation) notifyJobs() (jobs chan os.Signal, stop func()) {
	if c.asker.console == nil && (c.narrator == nil || c.narrator.status == nil) {
		return nil, func() {}
	}
	return notify(unix.SIGTSTP, unix.SIGCONT)
}

// SIGCONT follows at once when this process runs again. The wait for it is bounded
// by a number of short times, because the time in which the process is stopped
// counts too.
const (
	continueTime  = 20 * time.Millisecond
	continueTimes = 20
)

// job handles a signal of the shell: it leaves the terminal as it was, stops, and
// comes back. The agent goes on meanwhile.
func (c *conversation) job(s os.Signal, jobs <-chan os.Signal) {
	if s == unix.SIGTSTP {
		if !hasShell() {
			return // no other process would continue this one
		}
		if c.narrator != nil {
			c.narrator.pause(true)
			defer c.narrator.pause(false)
		}
		if c.asker.console != nil {
			c.asker.console.suspend()
		}
		// The default action of SIGTSTP cannot be restored in a Go program.
		_ = unix.Kill(unix.Getpid(), unix.SIGSTOP) // a process may signal itself
		for i := 0; s != unix.SIGCONT && i < continueTimes; i++ {
			select {
			case s = <-jobs:
			case <-time.After(continueTime):
			}
		}
	}
	if c.asker.console != nil {
		c.asker.console.resume()
	}
}

// hasShell reports whether a shell controls this process: a process of the same
// session outside its process group started the group. The kernel does not let
// SIGTSTP stop other groups.
func hasShell() bool {
	group := unix.Getpgrp()
	session, err := unix.Getsid(0)
	if err != nil {
		return false
	}
	for pid := unix.Getppid(); pid > 1; pid = parentOf(pid) {
		if g, err := unix.Getpgid(pid); err == nil && g == group {
			continue
		}
		s, err := unix.Getsid(pid)
		return err == nil && s == session
	}
	return false
}

// parentOf returns the parent of a process, or 0 where that is not known.
func parentOf(pid int) int {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0
	}
	// The name in parentheses may hold anything.
	fields := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(fields) < 2 {
		return 0
	}
	parent, err := strconv.Atoi(string(fields[1]))
	if err != nil {
		return 0
	}
	return parent
}
