//go:build amd64 || arm64

package isolate

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/launch"
)

// proof is what a mechanism was seen to give on this machine.
type proof struct {
	Has Set                  `json:"has"`
	Why map[Guarantee]string `json:"why"` // of what it does not give
	Err error                `json:"-"`   // why it cannot be used at all
}

// proofTime bounds the test of a mechanism.
const proofTime = time.Minute

// wall is a mechanism in one of its variants.
type wall struct {
	mechanism string
	subuid    bool // runs are users that own nothing on this machine
}

// walls are the variants on this machine, the best first.
func walls() []wall {
	if os.Geteuid() == 0 {
		return []wall{{Namespaces, true}, {Namespaces, false}, {Landlock, false}, {GVisor, true}}
	}
	return []wall{{Namespaces, false}, {Landlock, false}, {GVisor, false}}
}

// apart reports whether runs have namespaces.
func (w wall) apart() bool { return w.mechanism != Landlock }

// limits reports whether the wall itself limits the processes of a run: what is seen
// of them outside are also those of gVisor.
func (w wall) limits() bool { return w.mechanism == GVisor }

// whole reports whether a run that exceeds its limit of memory ends as a whole: the
// memory of all its processes is that of gVisor.
func (w wall) whole() bool { return w.mechanism == GVisor }

// name says which variant it is.
func (w wall) name() string {
	if w.subuid {
		return w.mechanism + "+subuid"
	}
	return w.mechanism
}

// rigIsolation is what attempts are made against.
func rigIsolation(w wall, profile Profile) *spool.Isolation {
	i := &spool.Isolation{Profile: string(profile)}
	if w.apart() {
		i.Protected = []string{".git", ".missing"}
	}
	if profile == Strict { // the program that makes the attempts
		if exe, err := os.Executable(); err == nil {
			i.Readable = []string{exe}
		}
	}
	return i
}

// prove tests a mechanism, or remembers what an earlier test of it found.
func prove(l *launch.Launcher, w wall) *proof {
	file := proofFile(l, w)
	if p := readProof(file); p != nil {
		return p
	}
	ctx, cancel := context.WithTimeout(context.Background(), proofTime)
	defer cancel()
	p := test(ctx, l, w)
	most := Offline.Guarantees().With(Proxied)
	switch w.mechanism {
	case Landlock:
		most = NewSet(Writes, NoNetwork)
	case GVisor:
		most = most.With(Narrow)
	}
	if most = most.With(Reads); l.TryLimits(rigMemory, rigCPUs) == nil {
		most = most.With(Memory, Processor)
	}
	if p.Err == nil && len(most.Without(p.Has)) == 0 { // others may have failed by chance
		keep(file, p)
	}
	return p
}

// test makes every attempt behind the wall.
func test(ctx context.Context, l *launch.Launcher, w wall) *proof {
	p := &proof{Why: make(map[Guarantee]string)}
	r, err := newRig()
	if err != nil {
		p.Err = fmt.Errorf("prepare the test: %w", err)
		return p
	}
	defer r.close()
	escaped := make(map[Guarantee]string)
	held := make(map[Guarantee]bool)
	limits := l.TryLimits(rigMemory, rigCPUs)
	for _, profile := range []Profile{Offline, NetAllow, WorkspaceWrite, Strict} { // without a network, with a proxy, with the network of this machine, and with all walls
		if profile == NetAllow && !w.apart() {
			escaped[Proxied] = "it has no network of its own"
			continue
		}
		list, uid, err := r.try(ctx, l, w, profile)
		switch {
		case err == nil:
		case profile == NetAllow: // the other walls may hold without this one
			escaped[Proxied] = err.Error()
			continue
		case profile == Strict:
			escaped[Reads], escaped[Memory], escaped[Processor] = err.Error(), err.Error(), err.Error()
			continue
		default:
			p.Err = err
			return p
		}
		for _, a := range list {
			if a.Guarantee == NoNetwork && !profile.Guarantees().Has(NoNetwork) || a.Guarantee == Reads && profile != Strict {
				continue
			}
			if a.Escaped {
				escaped[a.Guarantee] = a.Name + " succeeded"
			}
			held[a.Guarantee] = true
		}
		held[Rootless] = true
		if uid == 0 {
			escaped[Rootless] = "runs are root outside"
		}
	}
	if limits != nil {
		escaped[Memory], escaped[Processor] = limits.Error(), limits.Error()
	}
	if w.mechanism != GVisor {
		escaped[Narrow] = "its kernel is that of the machine"
	}
	held[Survives] = true
	if err := outlives(w); err != nil {
		escaped[Survives] = err.Error()
	}
	if !w.apart() && l.Guarantees().Kill != launch.KillCgroup {
		escaped[Kills] = "processes are found by a search, and one that forks may be missed"
	}
	for _, g := range guarantees() {
		switch why := escaped[g]; {
		case why != "":
			p.Why[g] = why
		case held[g]:
			p.Has = append(p.Has, g)
		}
	}
	return p
}

// try makes the attempts of a rig behind a wall with a profile.
func (r *rig) try(ctx context.Context, l *launch.Launcher, w wall, profile Profile) ([]Attempt, int, error) {
	if err := r.reset(); err != nil {
		return nil, 0, err
	}
	policy, err := NewPolicy(rigIsolation(w, profile), r.targets.Workspace)
	if err != nil {
		return nil, 0, err
	}
	e, err := w.enclose(policy, nil)
	if err != nil {
		return nil, 0, err
	}
	defer func() { e.close() }()
	pids, nproc := rigProcesses, 0
	switch {
	case w.limits():
		pids, nproc = 0, guestProcesses
	case !l.Guarantees().Pids:
		pids, nproc = 0, rigProcesses
	}
	o := runOptions{pids: pids, whole: w.whole(), limited: profile == Strict && l.TryLimits(rigMemory, rigCPUs) == nil, on: e.on(), kill: e.kill, gateway: e.gateway(), fork: func(path string, argv []string, attr *syscall.ProcAttr) (int, error) {
		return e.fork(path, argv, attr, rlimits{processes: nproc})
	}}
	list, uid, err := r.run(ctx, l, o)
	if err != nil || !o.limited || !o.whole {
		return list, uid, err
	}
	e.close()
	if e, err = w.enclose(policy, nil); err != nil {
		return nil, 0, err
	}
	o.kill = e.kill
	a, err := r.exceed(ctx, l, o)
	return append(list, a...), uid, err
}

// outlives checks that nothing stays behind a wall when the process that made it
// ends.
func outlives(w wall) error {
	if !w.apart() {
		return errors.New("no process ends those of a run when Spool ends")
	}
	policy, err := NewPolicy(&spool.Isolation{Profile: string(ReadOnly)}, "/")
	if err != nil {
		return err
	}
	e, err := w.enclose(policy, nil)
	if err != nil {
		return err
	}
	defer e.close()
	s := e.(*sandbox)
	out, in, err := os.Pipe()
	if err != nil {
		return err
	}
	defer out.Close()
	pid, err := s.fork(self, []string{"spool", Role, "attempt", "wait"}, &syscall.ProcAttr{Env: []string{}, Dir: "/", Files: []uintptr{in.Fd(), in.Fd(), in.Fd()}}, rlimits{})
	_ = in.Close()
	if err != nil {
		return err
	}
	s.abandon()
	if err := out.SetReadDeadline(time.Now().Add(survivorTime)); err != nil {
		return err
	}
	if !allGone(out) {
		err = errors.New("a process was left")
	}
	_ = unix.Kill(pid, unix.SIGKILL) // if it was left
	reap(pid)
	return err
}

// proofFile is where the proof of a mechanism is kept: for this boot, this kernel,
// this program and this user.
func proofFile(l *launch.Launcher, w wall) string {
	name := w.name()
	if w.mechanism == GVisor {
		runsc, err := findGVisor()
		var st unix.Stat_t
		if err != nil || unix.Stat(runsc, &st) != nil {
			return ""
		}
		name += fmt.Sprintf(" %d %d %d %d", st.Dev, st.Ino, st.Size, st.Mtim.Nano())
	}
	return proofFileOf(l, name)
}

// proofFileOf is [proofFile] for a test with a name.
func proofFileOf(l *launch.Launcher, name string) string {
	return proofFileNamed(fmt.Sprintf("%v %s", l.Guarantees(), name))
}

// proofFileNamed is where the proof of a test with a name is kept.
func proofFileNamed(name string) string {
	cache := cacheDir()
	if cache == "" {
		return ""
	}
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	var uts unix.Utsname
	var exe unix.Stat_t
	if unix.Uname(&uts) != nil || unix.Stat(self, &exe) != nil {
		return ""
	}
	namespace, err := os.Readlink("/proc/self/ns/user")
	if err != nil {
		return ""
	}
	key := fmt.Sprintf("%s %s %s %d %d %d %d %d %s %s", boot, unix.ByteSliceToString(uts.Release[:]), unix.ByteSliceToString(uts.Version[:]),
		exe.Dev, exe.Ino, exe.Size, exe.Mtim.Nano(), os.Geteuid(), namespace, name)
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(cache, hex.EncodeToString(sum[:])+".json")
}

// cacheDir returns our directory in the user's cache, which may not exist yet, or
// "" for a user without a home directory.
func cacheDir() string {
	cache, err := os.UserCacheDir()
	if err != nil {
		return ""
	}
	if _, err := os.Stat(filepath.Dir(cache)); err != nil {
		return ""
	}
	return filepath.Join(cache, "spool", "isolation")
}

// readProof returns a proof that is kept, if the file is this user's alone.
func readProof(file string) *proof {
	p := new(proof)
	if !readKept(file, p) || len(p.Has) == 0 {
		return nil
	}
	return p
}

// readKept reads what was kept in a file, if the file is this user's alone.
func readKept(file string, v any) bool {
	var st unix.Stat_t
	if file == "" || unix.Lstat(file, &st) != nil || st.Uid != uint32(os.Geteuid()) || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Mode&0o022 != 0 {
		return false
	}
	b, err := os.ReadFile(file)
	return err == nil && json.Unmarshal(b, v) == nil
}

// keep writes a file for [readKept]. Without it the next process tests again.
func keep(file string, v any) {
	if file == "" {
		return
	}
	b, err := json.Marshal(v)
	if err != nil || os.MkdirAll(filepath.Dir(file), 0o700) != nil {
		return
	}
	f, err := os.CreateTemp(filepath.Dir(file), ".new-")
	if err != nil {
		return
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		_ = os.Remove(f.Name())
	}
}

// namespaceFix is what to do about namespaces that the kernel refuses.
func namespaceFix(err error) string {
	setting := func(name string) string {
		b, err := os.ReadFile("/proc/sys/" + name)
		if err != nil {
			return ""
		}
		return strings.TrimSpace(string(b))
	}
	switch {
	case setting("kernel/apparmor_restrict_unprivileged_userns") == "1":
		return `add an AppArmor profile for spool that has "userns,", or run sysctl kernel.apparmor_restrict_unprivileged_userns=0`
	case setting("kernel/unprivileged_userns_clone") == "0":
		return "run sysctl kernel.unprivileged_userns_clone=1"
	case setting("user/max_user_namespaces") == "0":
		return "run sysctl user.max_user_namespaces=15000"
	case errors.Is(err, unix.EPERM):
		return "in a container, allow namespaces (docker run --security-opt seccomp=unconfined --security-opt systempaths=unconfined)"
	}
	return ""
}
