//go:build amd64 || arm64

package isolate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/forkexec"
	"github.com/spool-run/spool/internal/launch"
)

// A run in gVisor is in a sandbox of namespaces like any other, but what is started
// there is gVisor's runsc, and the program runs on gVisor's kernel. The program of the
// run is a child of the guest, which is the first process on that kernel. Outside, the
// warden stands for the program: it passes signals on and ends as the program did.
//
//	Spool → warden → runsc → gVisor's kernel: guest → program

// gvisorProgram is the program of gVisor.
const gvisorProgram = "runsc"

// findGVisor returns the path of runsc.
func findGVisor() (string, error) {
	path, err := exec.LookPath(gvisorProgram)
	if err != nil {
		return "", fmt.Errorf("%w (no %s in PATH)", ErrNoGVisor, gvisorProgram)
	}
	return path, nil
}

// GVisorVersion returns the path of gVisor's runsc and what it says about its version.
// Without one the error is [ErrNoGVisor].
func GVisorVersion(ctx context.Context) (path, version string, err error) {
	if path, err = findGVisor(); err != nil {
		return "", "", err
	}
	b, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return path, "", fmt.Errorf("execute %s: %w", path, err)
	}
	version, _, _ = strings.Cut(string(b), "\n")
	if version = strings.TrimPrefix(version, gvisorProgram+" version "); version == "VERSION_MISSING" { // built with Go alone
		version = "of unknown version"
	}
	return path, version, nil
}

// guest is what a sandbox knows of its run in gVisor.
type guest struct {
	runsc   *os.File
	root    string // the tree of its run
	network network

	signalling sync.Mutex // held while a signal is on its way
	signals    *os.File   // for the first process on gVisor's kernel; nil before the start
	signalled  *os.File   // what that process says about them
}

// newGuestSandbox makes a sandbox for one run in gVisor. Landlock would forbid the mounts
// that gVisor makes.
func newGuestSandbox(p *Policy, subuid bool, from *spares) (*sandbox, error) {
	path, err := findGVisor()
	if err != nil {
		return nil, err
	}
	g := &guest{root: "/", network: hostNetwork}
	if g.runsc, err = os.Open(path); err != nil {
		return nil, err
	}
	if p.Need.Has(Reads) && !p.Bare {
		g.root = guestRoot
	}
	switch {
	case p.Need.Has(NoNetwork):
		g.network = emptyNetwork
	case p.proxied():
		g.network = ownNetwork
	}
	return newSandboxFor(g, p, subuid, 0, from)
}

func (g *guest) close() {
	for _, f := range []*os.File{g.runsc, g.signals, g.signalled} {
		if f != nil {
			_ = f.Close()
		}
	}
}

// Where the first process of a sandbox prepares what runsc needs. The programs of a
// run do not see it: they have a /dev of their own.
const (
	guestDir    = "/dev/gvisor"
	guestRoot   = guestDir + "/root"   // the tree of a run that may not read everything
	guestBundle = guestDir + "/bundle" // the description of the run
	guestState  = guestDir + "/state"  // of runsc
	guestLog    = guestDir + "/log"    // of runsc, in which it says why it failed
)

// guestSpec is a program to be started in gVisor. Its texts need not be UTF-8.
type guestSpec struct {
	Path    []byte       `json:"path"`
	Argv    [][]byte     `json:"argv"`
	Env     [][]byte     `json:"env"`
	Dir     string       `json:"dir"`
	Files   int          `json:"files"`   // descriptors of the program
	TTY     bool         `json:"tty"`     // the first of them is its terminal
	Pids    int          `json:"pids"`    // limit of processes; zero for none
	Nofile  *unix.Rlimit `json:"nofile"`  // nil for that of the warden
	Root    string       `json:"root"`    // of the tree
	Network network      `json:"network"` // of the sandbox
}

// guestReport is what the guest and the warden say about a start or an end.
type guestReport struct {
	Errno  int    `json:"errno,omitempty"` // of the exec
	Text   string `json:"text,omitempty"`  // why gVisor did not start
	Ended  bool   `json:"ended,omitempty"`
	Status int    `json:"status,omitempty"` // of a program that ended, as of wait4
	Left   bool   `json:"left,omitempty"`   // it left processes behind
}

// maxArgument is the limit of the kernel for one argument or variable with its end.
const maxArgument = 128 << 10

// guestTime bounds a start in gVisor.
const guestTime = time.Minute

// forkGuest starts a program in gVisor, as [sandbox.fork] does without. The process
// that it returns is the warden.
func (s *sandbox) forkGuest(path string, argv []string, attr *syscall.ProcAttr, l rlimits) (int, error) {
	for _, text := range append(append([]string{path}, argv...), attr.Env...) {
		if len(text) >= maxArgument { // gVisor has another error for it
			return 0, syscall.E2BIG
		}
	}
	g := guestSpec{Path: []byte(path), Argv: texts(argv), Env: texts(attr.Env), Dir: attr.Dir, Files: len(attr.Files), Pids: l.processes,
		Nofile: forkexec.SoftNofile(), Root: s.guest.root, Network: s.guest.network}
	if l.files > 0 {
		g.Nofile = &unix.Rlimit{Cur: uint64(l.files), Max: uint64(l.files)}
	}
	g.TTY = attr.Sys != nil && attr.Sys.Setctty
	b, err := json.Marshal(g)
	if err != nil {
		return 0, err
	}
	spec, err := memoryFile(b)
	if err != nil {
		return 0, err
	}
	defer spec.Close()
	answers, report, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer answers.Close()
	defer report.Close()
	start := *attr
	start.Env, start.Dir = initEnv, "/"
	in, signals, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer in.Close()
	s.guest.signals = signals
	signalled, out, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer out.Close()
	s.guest.signalled = signalled
	start.Files = append(append([]uintptr{}, attr.Files...), spec.Fd(), report.Fd(), s.guest.runsc.Fd(), in.Fd(), out.Fd())
	c := &child{join: uintptr(s.pidfd), joinFlags: s.flags, setUser: s.own, ruleset: none}
	pid, err := c.forkExec(self, []string{"spool", Role, "warden", strconv.Itoa(len(attr.Files))}, &start, rlimits{})
	if err != nil {
		return 0, err
	}
	_ = report.Close()
	var r guestReport
	err = answers.SetReadDeadline(time.Now().Add(guestTime))
	if err == nil {
		err = json.NewDecoder(answers).Decode(&r)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		err = fmt.Errorf("start gVisor: the program was not started within %s", guestTime)
	case err != nil:
		err = fmt.Errorf("start gVisor: %w", err)
	case r.Text != "":
		err = errors.New("start gVisor: " + r.Text)
	case r.Errno != 0:
		err = syscall.Errno(r.Errno)
	default:
		return pid, nil
	}
	s.kill() // the sandbox is of this run alone
	reap(pid)
	if attr.Sys != nil && attr.Sys.PidFD != nil && *attr.Sys.PidFD >= 0 {
		_ = unix.Close(*attr.Sys.PidFD)
		*attr.Sys.PidFD = -1
	}
	return 0, err
}

// signalTime bounds how long a guest may take to send a signal.
const signalTime = 20 * time.Second

// signal has the guest signal processes of the run, and waits until it has. The message
// is the target and the signal.
func (g *guest) signal(sig syscall.Signal, to launch.Target) error {
	g.signalling.Lock()
	defer g.signalling.Unlock()
	if _, err := g.signals.Write([]byte{byte(to), byte(sig)}); err != nil {
		if errors.Is(err, unix.EPIPE) || errors.Is(err, os.ErrClosed) { // the guest has ended
			return nil
		}
		return fmt.Errorf("tell gVisor about a signal: %w", err)
	}
	err := g.signalled.SetReadDeadline(time.Now().Add(signalTime))
	if err == nil {
		_, err = io.ReadFull(g.signalled, make([]byte, 1))
	}
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, os.ErrClosed) {
		return fmt.Errorf("wait for gVisor to send a signal: %w", err)
	}
	return nil
}

func texts(list []string) [][]byte {
	var result [][]byte
	for _, s := range list {
		result = append(result, []byte(s))
	}
	return result
}

// memoryFile returns a file with content that is in no directory.
func memoryFile(b []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("spool", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memory")
	if _, err := f.WriteAt(b, 0); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// readSpec reads the description of a program.
func readSpec(fd int) (*guestSpec, error) {
	f := os.NewFile(uintptr(fd), "spec")
	defer f.Close()
	g := new(guestSpec)
	return g, json.NewDecoder(io.NewSectionReader(f, 0, 1<<40)).Decode(g)
}

// firstSpareFD is above all descriptors that a program may be given.
const firstSpareFD = 512

// wardenMain is the process outside of gVisor that stands for a program in it. Its
// descriptors are those of the program, then the spec, the report, runsc, and the signals
// of Spool with what the guest says about them.
func wardenMain(arg string) int {
	n, err := strconv.Atoi(arg)
	if err != nil {
		return 2
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	for fd := 3; fd < n+5; fd++ {
		unix.CloseOnExec(fd)
	}
	report := os.NewFile(uintptr(n+1), "report")
	w := &warden{signals: signals}
	if err := w.start(n, report); err != nil {
		_ = json.NewEncoder(report).Encode(guestReport{Text: err.Error()})
		return 1
	}
	_ = report.Close()
	return w.wait()
}

type warden struct {
	signals chan os.Signal
	runsc   *exec.Cmd
	down    *os.File // signals for the guest
	up      *json.Decoder
}

// start starts runsc and waits until the guest has executed the program.
func (w *warden) start(n int, report io.Writer) error {
	g, err := readSpec(n)
	if err != nil {
		return fmt.Errorf("read what is to be started: %w", err)
	}
	runsc, err := unix.FcntlInt(uintptr(n+2), unix.F_DUPFD_CLOEXEC, firstSpareFD) // above the descriptors of its child
	if err != nil {
		return err
	}
	exe, err := os.Open(self)
	if err != nil {
		return err
	}
	defer exe.Close()
	if err := g.writeBundle(); err != nil {
		return err
	}
	spec, err := json.Marshal(g)
	if err != nil {
		return err
	}
	described, err := memoryFile(spec)
	if err != nil {
		return err
	}
	defer described.Close()
	signalsOut, down, err := os.Pipe()
	if err != nil {
		return err
	}
	defer signalsOut.Close()
	up, reports, err := os.Pipe()
	if err != nil {
		return err
	}
	defer reports.Close()
	w.down, w.up = down, json.NewDecoder(up)

	net := "host" // of the sandbox's namespaces
	if g.Network == emptyNetwork {
		net = "none"
	}
	c := exec.Command("/proc/self/fd/"+strconv.Itoa(runsc), "--root="+guestState, "--log="+guestLog, "--log-format=json", "--rootless", "--ignore-cgroups",
		"--platform=systrap", "--network="+net, "--overlay2=none", "--directfs=false", "--file-access=shared", "--host-uds=none", "--host-fifo=open", "--oci-seccomp", "run", "--bundle="+guestBundle)
	c.Args[0] = gvisorProgram
	c.Env = []string{"PATH=/usr/bin:/bin"}
	c.Stdin, c.Stdout, c.Stderr = os.Stdin, os.Stdout, os.Stderr
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // the signals of the terminal are for this process
	pass := func(f *os.File, guest int) {
		c.ExtraFiles = append(c.ExtraFiles, f)
		c.Args = append(c.Args, fmt.Sprintf("--pass-fd=%d:%d", 2+len(c.ExtraFiles), guest))
	}
	for fd := 3; fd < n; fd++ {
		pass(os.NewFile(uintptr(fd), "file"), fd)
	}
	pass(described, n)
	pass(signalsOut, n+1)
	pass(reports, n+2)
	theirs, ours := os.NewFile(uintptr(n+3), "signals"), os.NewFile(uintptr(n+4), "signalled")
	pass(theirs, n+3)
	pass(ours, n+4)
	c.ExtraFiles = append(c.ExtraFiles, exe)
	c.Args = append(c.Args, "--exec-fd="+strconv.Itoa(2+len(c.ExtraFiles)), "run")
	if err := c.Start(); err != nil {
		return fmt.Errorf("execute runsc: %w", err)
	}
	w.runsc = c
	_, _ = theirs.Close(), ours.Close() // their ends are those of the guest
	_ = reports.Close()
	var r guestReport
	if err := w.up.Decode(&r); err != nil {
		_ = c.Wait()
		return fmt.Errorf("runsc: %s", lastLog())
	}
	return json.NewEncoder(report).Encode(r)
}

// lastLog returns the last message of runsc.
func lastLog() string {
	b, err := os.ReadFile(guestLog)
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	last := lines[len(lines)-1]
	if err != nil || last == "" {
		return "it ended without a message, as one does that is too old for the flags that it gets"
	}
	var m struct {
		Msg string `json:"msg"`
	}
	if json.Unmarshal([]byte(last), &m) == nil && m.Msg != "" {
		return m.Msg
	}
	return last
}

// wait passes signals on until the program has ended, and ends as it did.
func (w *warden) wait() int {
	ended := make(chan guestReport, 1)
	go func() {
		var r guestReport
		if w.up.Decode(&r) != nil { // gVisor was killed
			r = guestReport{Ended: true, Status: int(unix.SIGKILL)}
		}
		ended <- r
	}()
	for {
		select {
		case s := <-w.signals:
			switch n := s.(syscall.Signal); n {
			case unix.SIGURG, unix.SIGCHLD, unix.SIGPIPE: // of this process itself
			default:
				_, _ = w.down.Write([]byte{byte(launch.Foreground), byte(n)}) // to a guest that has ended there is nothing to say
			}
		case r := <-ended:
			if !r.Left {
				_ = w.runsc.Wait() // it has the streams of the program
			}
			return endAs(unix.WaitStatus(r.Status))
		}
	}
}

// endAs ends this process as another one ended.
func endAs(status unix.WaitStatus) int {
	if !status.Signaled() {
		return status.ExitStatus()
	}
	sig := status.Signal()
	_ = unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	// The default of the kernel, not that of the runtime, which ignores some.
	var byDefault struct{ handler, flags, restorer, mask uint64 }
	_, _, _ = unix.RawSyscall6(unix.SYS_RT_SIGACTION, uintptr(sig), uintptr(unsafe.Pointer(&byDefault)), 0, 8, 0, 0)
	_ = unix.Kill(os.Getpid(), sig)
	time.Sleep(time.Second) // until the signal arrives
	return 128 + int(sig)
}

// guestThreads is how many of the processes in gVisor may be threads of the guest.
const guestThreads = 12

// writeBundle describes the run for runsc, in the format of the Open Container
// Initiative.
func (g *guestSpec) writeBundle() error {
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	type object = map[string]any
	var limits []object
	if l := g.Nofile; l != nil {
		limits = append(limits, object{"type": "RLIMIT_NOFILE", "hard": l.Max, "soft": l.Cur})
	}
	if g.Pids > 0 {
		limits = append(limits, object{"type": "RLIMIT_NPROC", "hard": g.Pids + guestThreads, "soft": g.Pids + guestThreads})
	}
	linux := object{"namespaces": []object{{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}}}
	if g.Network != hostNetwork {
		linux["seccomp"] = object{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": []object{{"names": []string{"socket"}, "action": "SCMP_ACT_ERRNO",
			"args": []object{{"index": 0, "value": unix.AF_NETLINK, "op": "SCMP_CMP_EQ"}}}}}
	}
	b, err := json.Marshal(object{
		"ociVersion": "1.2.0",
		"hostname":   host,
		"root":       object{"path": g.Root},
		"process": object{"terminal": g.TTY, "user": object{"uid": 0, "gid": 0}, "args": []string{"spool", Role, "guest", strconv.Itoa(g.Files)}, "env": initEnv,
			"cwd": g.Dir, "capabilities": object{}, "rlimits": limits, "noNewPrivileges": true},
		"mounts": []object{
			{"destination": "/proc", "type": "proc", "source": "proc"},
			{"destination": "/dev", "type": "tmpfs", "source": "tmpfs"},
			{"destination": "/sys", "type": "sysfs", "source": "sysfs", "options": []string{"ro"}}},
		"linux": linux,
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(guestBundle, "config.json"), b, 0o600)
}
