package launch

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// proc is the content of /proc/<pid>/stat. A pid and a start time together
// identify a process for ever.
type proc struct {
	pid, ppid, pgrp, sid int
	state                byte
	start                uint64
}

func (p proc) dead() bool { return p.state == 'Z' || p.state == 'X' }

func readProc(pid int) (proc, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return proc{}, err
	}
	return parseStat(b)
}

// Exiting reports whether the main thread of a process is exiting or has exited. Its
// descriptors may be closed before its exit can be waited for.
func Exiting(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return true
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 7 {
		return false
	}
	const exiting = 0x4 // PF_EXITING of the kernel
	flags, err := strconv.ParseUint(f[6], 10, 64)
	return err == nil && flags&exiting != 0
}

var errStat = errors.New("malformed stat")

// parseStat parses a stat file. The command name in it is free text, so fields
// are counted from its closing parenthesis.
func parseStat(b []byte) (proc, error) {
	open, end := bytes.IndexByte(b, '('), bytes.LastIndexByte(b, ')')
	if open < 1 || end < open {
		return proc{}, errStat
	}
	f := strings.Fields(string(b[end+1:]))
	if len(f) < 20 || len(f[0]) != 1 {
		return proc{}, errStat
	}
	p := proc{state: f[0][0]}
	var err error
	for _, n := range []struct {
		to   *int
		text string
	}{
		{&p.pid, strings.TrimSpace(string(b[:open]))},
		{&p.ppid, f[1]}, {&p.pgrp, f[2]}, {&p.sid, f[3]},
	} {
		if *n.to, err = strconv.Atoi(n.text); err != nil {
			return proc{}, fmt.Errorf("%w: %w", errStat, err)
		}
	}
	if p.start, err = strconv.ParseUint(f[19], 10, 64); err != nil {
		return proc{}, fmt.Errorf("%w: %w", errStat, err)
	}
	return p, nil
}

// pids lists the processes of the machine.
func pids() ([]int, error) {
	d, err := os.Open("/proc")
	if err != nil {
		return nil, err
	}
	defer d.Close()
	names, err := d.Readdirnames(-1)
	if err != nil {
		return nil, err
	}
	list := make([]int, 0, len(names))
	for _, n := range names {
		if pid, err := strconv.Atoi(n); err == nil {
			list = append(list, pid)
		}
	}
	return list, nil
}

// procs describes the processes of the machine, without those that end
// meanwhile.
func procs() (map[int]proc, error) {
	list, err := pids()
	if err != nil {
		return nil, err
	}
	m := make(map[int]proc, len(list))
	for _, pid := range list {
		if p, err := readProc(pid); err == nil {
			m[pid] = p
		}
	}
	// A parent that ended meanwhile is missing, but its child names it: the child
	// has another parent now.
	for pid, p := range m {
		for p.ppid != 0 && m[p.ppid].pid == 0 {
			now, err := readProc(pid)
			if err != nil || now.start != p.start || now.ppid == p.ppid {
				break // it ended, too, or its parent is newer than the list
			}
			p = now
			m[pid] = p
		}
	}
	return m, nil
}

// marked returns an environment with the mark of a tree, instead of one that was
// inherited.
func marked(env []string, mark string) []string {
	out := make([]string, 0, len(env)+1)
	for _, v := range env {
		if !strings.HasPrefix(v, markVariable+"=") {
			out = append(out, v)
		}
	}
	return append(out, markVariable+"="+mark)
}

// markOf returns the value of markVariable in the environment that the process
// was executed with, or "" if it is unset or unreadable. A process that executes a
// program at that moment seems to have no environment; it is read again.
func markOf(pid int) string {
	wait := execTime
	for range execReads {
		b, err := readEnviron(pid)
		if err != nil {
			return ""
		}
		for v := range bytes.SplitSeq(b, []byte{0}) {
			if rest, ok := bytes.CutPrefix(v, []byte(markVariable+"=")); ok {
				return string(rest)
			}
		}
		if _, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/exe"); err != nil || len(b) > 0 {
			return "" // a thread of the kernel or a zombie, or without a mark
		}
		if !executing(pid) {
			return ""
		}
		time.Sleep(wait)
		wait = min(2*wait, longExecTime)
	}
	return ""
}

// readEnviron reads the environment of a process. One read call, unlike several,
// sees the environment of one program.
func readEnviron(pid int) ([]byte, error) {
	f, err := os.Open("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b := make([]byte, 64<<10)
	for n := 0; ; {
		more, err := f.Read(b[n:])
		n += more
		if err == io.EOF || err == nil && n < len(b) {
			return b[:n], nil
		}
		if err != nil {
			return nil, err
		}
		b = slices.Grow(b, len(b))[:2*len(b)]
	}
}

// How often and after which time the environment of a process that executes a
// program is read again: for 2 s, because a busy machine may stop the process there.
const (
	execReads    = 1000
	execTime     = 100 * time.Microsecond
	longExecTime = 2 * time.Millisecond
)

// executing reports whether a process whose environment was read as empty was
// about to execute a program, or has done so since. The kernel sets the bounds of
// the environment one after the other, and those of the program's code last.
func executing(pid int) bool {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return false
	}
	f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(f) < 49 {
		return false
	}
	code, start, end := f[23], f[47], f[48] // start of the code, bounds of the environment
	return code == "0" || end == "0" || start != end
}
