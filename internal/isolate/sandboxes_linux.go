//go:build amd64 || arm64

package isolate

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/launch"
)

// Sandboxes isolates the runs of an engine. Runs with the same isolation and paths
// share a sandbox, where each of them is kept from the others: so a start costs
// about what it costs without isolation. A sandbox stays for a moment after its
// last run.
type Sandboxes struct {
	launcher *launch.Launcher

	mu       sync.Mutex
	proofs   map[wall]*proof
	overlays map[string]error // by what was tested
	shared   map[string]*shared
	closed   bool

	spares spares
}

// shared is a sandbox of several runs, one after the other or at once.
type shared struct {
	enclosure
	key   string
	users int
	timer *time.Timer // ends it; set while it has no users
}

// The time that a sandbox without runs stays, and how many may.
const (
	idleTime = 30 * time.Second
	maxIdle  = 8
)

// New returns an isolation for the runs that a launcher starts. The caller must
// close it before the launcher.
func New(l *launch.Launcher) *Sandboxes {
	return &Sandboxes{launcher: l, proofs: make(map[wall]*proof), overlays: make(map[string]error), shared: make(map[string]*shared)}
}

// Lease is the isolation of one run.
type Lease struct {
	owner  *Sandboxes
	wall   wall
	in     enclosure
	shared *shared // nil if the sandbox is this run's alone
	policy *Policy
	report *spool.Isolation
	limits rlimits

	network *Network

	mu       sync.Mutex
	released bool
}

// Prepare finds the mechanism for a request and prepares it for a run with a
// limit of processes in a working directory. Runs of different tenants never
// share a sandbox. The error is a [*Refusal] if there is no such mechanism.
func (m *Sandboxes) Prepare(request *spool.Isolation, cwd string, pids int, tenant string) (*Lease, error) {
	return m.prepare(request, cwd, pids, tenant, nil)
}

func (m *Sandboxes) prepare(request *spool.Isolation, cwd string, pids int, tenant string, o *Overlay) (*Lease, error) {
	return m.prepareLimited(request, cwd, pids, tenant, o, nil)
}

// prepareLimited prepares a run that has the limits of M and C in limited.
func (m *Sandboxes) prepareLimited(request *spool.Isolation, cwd string, pids int, tenant string, o *Overlay, limited Set) (*Lease, error) {
	p, err := NewPolicy(request, cwd)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", spool.ErrInvalid, err)
	}
	p.Limited = limited
	if err := p.resolve(); err != nil {
		return nil, fmt.Errorf("%w: %w", spool.ErrInvalid, err)
	}
	if o != nil {
		if err := p.overlay(o); err != nil {
			return nil, fmt.Errorf("%w: %w", spool.ErrInvalid, err)
		}
	}
	r := &Refusal{Profile: p.Profile, Missing: p.Need}
	var fix string
	for _, w := range p.walls() {
		if w.mechanism == GVisor {
			if _, err := findGVisor(); err != nil { // it may be installed later
				r.add(w.mechanism, p.Need, err.Error())
				r.Fixes = append(r.Fixes, InstallGVisor)
				continue
			}
		}
		proof := m.proof(w)
		if proof.Err == nil && o != nil {
			proof.Err = m.proveOverlay(w, o)
		}
		if proof.Err == nil {
			has := w.has(p, proof)
			if missing, why := w.missing(p, proof, has); len(missing) > 0 {
				r.add(w.mechanism, missing, why)
				continue
			}
			l, err := m.lease(w, p, pids, tenant)
			if err == nil {
				l.report = p.Report(request, w.mechanism, has)
				return l, nil
			}
			proof.Err = err
			m.forget(w)
		}
		r.add(w.mechanism, p.Need, proof.Err.Error())
		if w.mechanism == Namespaces && fix == "" {
			fix = namespaceFix(proof.Err)
		}
	}
	r.complete(p, fix)
	return nil, r
}

// walls returns the variants to try for a policy, in their order. gVisor costs more than
// the others, which give all but few system calls: it is tried for those, and before the
// others are tested in vain.
func (p *Policy) walls() []wall {
	var list []wall
	for _, w := range walls() {
		switch {
		case p.Mechanism != "" && p.Mechanism != w.mechanism:
		case w.mechanism != GVisor:
			list = append(list, w)
		case p.Mechanism == GVisor || p.Need.Has(Narrow):
			list = append([]wall{w}, list...)
		}
	}
	return list
}

// resolve follows the symbolic links in the paths: what a link leads to later is
// another path.
func (p *Policy) resolve() (err error) {
	cwd := p.Cwd
	if p.Cwd, err = evalSymlinks(cwd); err != nil {
		return fmt.Errorf("working directory: %w", err)
	}
	for i, path := range p.Writable {
		if path == cwd {
			p.Writable[i] = p.Cwd
		} else if p.Writable[i], err = evalSymlinks(path); err != nil {
			return fmt.Errorf("writable path: %w", err)
		}
		if fi, err := os.Stat(path); err == nil && !fi.IsDir() && !fi.Mode().IsRegular() {
			return fmt.Errorf("writable path %s: neither a directory nor a file", path)
		}
		for _, dir := range []string{"/proc", "/sys", "/dev"} {
			if p.Writable[i] == dir {
				return fmt.Errorf("%s cannot be writable in an isolated run", dir)
			}
		}
	}
	if p.Bare && p.writesAll() {
		return errors.New("/ cannot be writable in a bare tree")
	}
	for n, list := range [][]string{p.Readable, p.Protected, p.Hidden} {
		for i, path := range list {
			resolved, err := evalSymlinks(path)
			switch {
			case err == nil:
				list[i] = resolved
				if n == 0 && resolved != path {
					p.links = append(p.links, link{path, resolved})
				}
			case errors.Is(err, fs.ErrNotExist): // its directory may be behind a link
				if dir, err := filepath.EvalSymlinks(filepath.Dir(path)); err == nil {
					list[i] = filepath.Join(dir, filepath.Base(path))
				}
			default:
				return err
			}
			if list[i] == "/" && (n > 0 || p.Bare) {
				return fmt.Errorf("/ cannot be %s", []string{"readable in a bare tree", "protected", "hidden"}[n])
			}
		}
	}
	return nil
}

// evalSymlinks is [filepath.EvalSymlinks] of a clean path. The kernel says in one call
// that there is no link on the way.
func evalSymlinks(path string) (string, error) {
	fd, err := unix.Openat2(unix.AT_FDCWD, path, &unix.OpenHow{Flags: unix.O_PATH | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_SYMLINKS})
	if err != nil {
		return filepath.EvalSymlinks(path)
	}
	_ = unix.Close(fd)
	return path, nil
}

// writesAll reports whether the whole tree is writable.
func (p *Policy) writesAll() bool { return slices.Contains(p.Writable, "/") }

// has returns what a run with the policy has behind the wall.
func (w wall) has(p *Policy, proof *proof) Set {
	absent := make(Set, 0, 5)
	for _, g := range [...]Guarantee{NoNetwork, Reads} {
		if !p.Need.Has(g) { // it was not asked for, so it is not there
			absent = append(absent, g)
		}
	}
	if !p.proxied() {
		absent = append(absent, Proxied)
	}
	for _, g := range [...]Guarantee{Memory, Processor} {
		if !p.Limited.Has(g) {
			absent = append(absent, g)
		}
	}
	has := proof.Has.Without(absent)
	if w.mechanism == Landlock && len(p.Protected) == 0 && p.Profile.Guarantees().Has(Protects) {
		has = has.With(Protects) // there is nothing to protect
	}
	return has
}

// missing returns what a policy needs and the wall does not give, and why.
func (w wall) missing(p *Policy, proof *proof, has Set) (Set, string) {
	missing := p.Need.Without(has)
	var why []string
	if w.mechanism == Landlock && len(p.Hidden) > 0 {
		missing = missing.With(Reads)
		why = append(why, "it cannot hide a path below one that can be read")
	}
	if w.mechanism == Landlock && p.Bare {
		missing = missing.With(Reads)
		why = append(why, "it cannot hide that a path exists")
	}
	if p.writesAll() && os.Geteuid() == 0 && !w.subuid {
		missing = missing.With(Writes)
		why = append(why, "root could change settings of the kernel where all is writable")
	}
	for i, g := range missing {
		text := w.why(g, p, proof)
		same := []string{string(g)}
		for _, other := range missing[i+1:] {
			if w.why(other, p, proof) == text {
				same = append(same, string(other))
			}
		}
		if text != "" && !slices.ContainsFunc(missing[:i], func(earlier Guarantee) bool { return w.why(earlier, p, proof) == text }) {
			why = append(why, fmt.Sprintf("%s: %s", strings.Join(same, ", "), text))
		}
	}
	return missing, strings.Join(why, "; ")
}

// why says why the wall does not give a guarantee to a run with the policy.
func (w wall) why(g Guarantee, p *Policy, proof *proof) string {
	switch {
	case g == Protects && w.mechanism == Landlock:
		return "it cannot protect a path below a writable one"
	case (g == Memory || g == Processor) && proof.Has.Has(g) && !p.Limited.Has(g):
		return "the run has no limit"
	}
	return proof.Why[g]
}

func (r *Refusal) add(mechanism string, missing Set, why string) {
	if len(missing) < len(r.Missing) {
		r.Missing = missing
	}
	for _, c := range r.Causes {
		if c.Mechanism == mechanism {
			return // of a better variant
		}
	}
	r.Causes = append(r.Causes, Cause{mechanism, why})
}

// complete adds the ways out.
func (r *Refusal) complete(p *Policy, fix string) {
	if fix != "" {
		r.Fixes = append(r.Fixes, fix)
	}
	if p.Need.Has(Memory) && !p.Limited.Has(Memory) {
		r.Fixes = append(r.Fixes, "give the run a limit of memory (--memory)")
	}
	if p.Need.Has(Processor) && !p.Limited.Has(Processor) {
		r.Fixes = append(r.Fixes, "give the run a limit of processor time (--cpus)")
	}
	if p.Mechanism != "" {
		r.Fixes = append(r.Fixes, "let Spool choose the mechanism")
	}
	for i := len(Profiles) - 1; i >= 0; i-- {
		weaker := Profiles[i]
		if weaker != p.Profile && len(weaker.Guarantees().Without(p.Profile.Guarantees())) == 0 && len(r.Missing.Without(weaker.Guarantees())) == len(r.Missing) {
			r.Fixes = append(r.Fixes, fmt.Sprintf("use profile %q", weaker))
			break
		}
	}
	if waivable := r.Missing.Without(NewSet(Proxied)); len(waivable) == len(r.Missing) && len(waivable) < len(p.Need) {
		r.Fixes = append(r.Fixes, "accept the run without with "+waivers(r.Missing))
	}
	if len(r.Fixes) == 0 {
		r.Fixes = append(r.Fixes, "\"spool doctor isolation\" shows what this machine offers")
	}
}

// proof returns what a wall gives on this machine. The first call tests it.
func (m *Sandboxes) proof(w wall) *proof {
	m.mu.Lock()
	defer m.mu.Unlock()
	p := m.proofs[w]
	if p == nil {
		p = prove(m.launcher, w)
		m.proofs[w] = p
	}
	copied := *p
	return &copied
}

// forget has the next start test a wall again.
func (m *Sandboxes) forget(w wall) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.proofs, w)
}

// lease puts a run behind a wall.
func (m *Sandboxes) lease(w wall, p *Policy, pids int, tenant string) (*Lease, error) {
	l := &Lease{owner: m, wall: w, policy: p}
	g := m.launcher.Guarantees()
	if !g.Pids || w.limits() {
		l.limits.processes = pids
	}
	// Runs that share a sandbox are kept apart by Landlock, and each is killed
	// by its control group. An overlay is of one run. A run with a proxy has a
	// network of its own, so that the proxy knows which run a connection is of.
	if p.Overlay != nil || p.proxied() || w.mechanism != Namespaces || g.Kill != launch.KillCgroup || !g.Pids || landlockABI() < abiScopes {
		in, err := w.enclose(p, &m.spares)
		l.in = in
		return l, err
	}
	key, err := w.key(p, tenant)
	if err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, spool.ErrClosed
	}
	s := m.shared[key]
	if s != nil && !s.alive() { // its first process was killed from outside
		m.drop(s)
		s = nil
	}
	if s == nil {
		in, err := w.enclose(p, &m.spares)
		if err != nil {
			return nil, err
		}
		s = &shared{enclosure: in, key: key}
		// The key of a path that was made for the sandbox is another now.
		if key, err = w.key(p, tenant); err != nil {
			in.close()
			return nil, err
		}
		s.key = key
		m.shared[key] = s
	}
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	s.users++
	l.in, l.shared = s, s
	return l, nil
}

// key is equal for runs that may share a sandbox. A path that was replaced has
// another key.
func (w wall) key(p *Policy, tenant string) (string, error) {
	b := make([]byte, 0, 256)
	b = strconv.AppendQuote(b, tenant)
	b = append(b, w.name()...)
	for _, set := range [...]bool{p.Need.Has(NoNetwork), p.Need.Has(Reads), p.HostTmp, p.Bare} {
		b = strconv.AppendBool(append(b, ' '), set)
	}
	b = strconv.AppendQuote(b, p.Cwd)
	for _, k := range p.links {
		b = strconv.AppendQuote(strconv.AppendQuote(b, k.Path), k.To)
	}
	for i, list := range [...][]string{p.Writable, p.Protected, p.Hidden, p.Readable} {
		for _, path := range list {
			var st unix.Stat_t
			if err := unix.Lstat(path, &st); err != nil && !errors.Is(err, unix.ENOENT) {
				return "", fmt.Errorf("stat %s: %w", path, err)
			}
			b = strconv.AppendInt(b, int64(i), 10)
			b = strconv.AppendQuote(b, path)
			b = strconv.AppendUint(b, st.Dev, 10)
			b = strconv.AppendUint(append(b, ' '), st.Ino, 10)
		}
	}
	return string(b), nil
}

// drop ends a sandbox. The caller holds m.mu.
func (m *Sandboxes) drop(s *shared) {
	if m.shared[s.key] == s {
		delete(m.shared, s.key)
	}
	if s.timer != nil {
		s.timer.Stop()
		s.timer = nil
	}
	s.close()
}

// Network returns the way of the run to the network; nil if it is not by a proxy. The
// caller of [Sandboxes.Start] must attach to it.
func (l *Lease) Network() *Network { return l.network }

// Fork starts the program of the run, in place of [syscall.ForkExec].
func (l *Lease) Fork(path string, argv []string, attr *syscall.ProcAttr) (int, error) {
	return l.in.fork(path, argv, attr, l.limits)
}

// Kill ends what a kill of the run's tree might leave.
func (l *Lease) Kill() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.shared == nil && !l.released {
		l.in.kill()
	}
}

// Signal signals the processes of a run that this kernel does not know.
func (l *Lease) Signal(sig syscall.Signal, to launch.Target) error {
	return l.in.(*sandbox).guest.signal(sig, to)
}

// Isolation returns what the run has, for [spool.Info].
func (l *Lease) Isolation() *spool.Isolation { return l.report }

// Sees reports whether the run can read what is at a clean path of the machine.
func (l *Lease) Sees(path string) bool {
	p := l.policy
	if p == nil { // not isolated
		return true
	}
	below := func(roots ...string) bool {
		return slices.ContainsFunc(roots, func(root string) bool { return Below(root, path) })
	}
	switch {
	case p.hides(path):
		return false
	case below(p.Writable...) || below(p.Readable...) || !p.Bare && below(p.Cwd):
		return true
	case l.wall.apart() && !p.HostTmp && below("/tmp", "/var/tmp"):
		return false
	}
	return !p.Need.Has(Reads)
}

// TempDir returns a directory for temporary files that the run can write to.
func (l *Lease) TempDir() string {
	if f, ok := l.in.(*fence); ok {
		return f.tmp
	}
	return "/tmp"
}

// Release ends the isolation of a run, after its end. Processes that the run left
// behind in a sandbox of its own end with it.
func (l *Lease) Release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released {
		return
	}
	l.released = true
	if l.network != nil {
		_, _ = l.network.Close()
	}
	if l.shared == nil {
		l.in.close()
		return
	}
	l.owner.leave(l.shared)
}

// leave counts a run of a sandbox out, and has the sandbox end some time after its
// last one.
func (m *Sandboxes) leave(s *shared) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if s.users--; s.users > 0 || m.closed {
		return
	}
	idle := 0
	for _, other := range m.shared {
		if other.users == 0 {
			idle++
		}
	}
	if m.shared[s.key] != s || idle > maxIdle || s.traces() {
		m.drop(s)
		return
	}
	s.timer = time.AfterFunc(idleTime, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		if s.users == 0 && m.shared[s.key] == s {
			m.drop(s)
		}
	})
}

// Close ends all sandboxes, and with them what is left in them.
func (m *Sandboxes) Close() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.closed = true
	for _, s := range m.shared {
		m.drop(s)
	}
	m.spares.close()
}
