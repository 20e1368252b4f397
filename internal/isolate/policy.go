package isolate

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/egress"
)

// The mechanisms.
const (
	Namespaces = "namespaces" // a sandbox of namespaces
	Landlock   = "landlock"   // Landlock and a filter of system calls
	GVisor     = "gvisor"     // a sandbox of namespaces in which gVisor is the kernel
)

// ErrNoGVisor reports that gVisor is not installed.
var ErrNoGVisor = errors.New("gVisor is not installed")

// InstallGVisor is how to install it.
const InstallGVisor = "install gVisor's runsc in PATH: https://gvisor.dev/docs/user_guide/install/, or CGO_ENABLED=0 go install gvisor.dev/gvisor/runsc@go"

// Policy is a request with nothing left open: every path is absolute and clean,
// and the guarantees are those of the profile and the request, without waivers.
type Policy struct {
	Profile   Profile
	Need      Set // must be proven
	Waived    Set // may lack
	Writable  []string
	Protected []string // below writable paths
	Readable  []string // only meaningful with Reads
	Bare      bool     // no other paths exist; only meaningful with Reads
	Only      bool     // of the system, only libraries and this program are readable, too
	Hidden    []string
	HostTmp   bool          // /tmp is that of the machine
	Rules     *egress.Rules // of the proxy; only meaningful with Proxied
	Proxy     string        // the address of a proxy that decides instead; empty for none
	Mechanism string        // the only one to use; empty for any
	Cwd       string
	Limited   Set      // of M and C: what the run has a limit of
	Overlay   *Overlay // what is writable in place of its base; nil for none

	leader  *leader // the first process of a hollow tree, in which only the places are; nil for any other tree
	places  []Place // of a hollow tree
	links   []link  // readable paths that are symbolic links; filled in by resolve
	secrets []secretFile
}

// link is a symbolic link to a path without any.
type link struct {
	Path string `json:"path"`
	To   string `json:"to"`
}

// Overlay is a copy-on-write view of a directory. What a run changes below Base is
// in Dir, which has the directories [UpperDir] and [WorkDir] and is on one file system.
type Overlay struct {
	Base, Dir string // absolute and clean, without symbolic links
}

// The directories of an overlay.
const (
	UpperDir = "upper" // what was changed
	WorkDir  = "work"  // of the kernel
)

// proxied reports whether the network of a sandbox is one that only has a proxy: a
// waiver accepts that there is none, and it is there all the same if it can be.
func (p *Policy) proxied() bool { return p.Need.Has(Proxied) || p.Waived.Has(Proxied) }

// Isolates reports whether a request asks for anything.
func Isolates(i *spool.Isolation) bool {
	return i != nil && (i.Profile != "" && i.Profile != string(None) || len(i.Guarantees) > 0)
}

// NewPolicy checks a request and completes it for a run in a working directory.
func NewPolicy(i *spool.Isolation, cwd string) (*Policy, error) {
	profile, err := ParseProfile(i.Profile)
	if err != nil {
		return nil, err
	}
	p := &Policy{Profile: profile, HostTmp: i.HostTmp, Bare: i.Bare, Mechanism: i.Mechanism, Cwd: filepath.Clean(cwd)}
	if !filepath.IsAbs(cwd) {
		return nil, fmt.Errorf("isolation needs an absolute working directory, not %q", cwd)
	}
	more, err := ParseSet(i.Guarantees)
	if err != nil {
		return nil, err
	}
	if p.Waived, err = ParseSet(i.Waive); err != nil {
		return nil, fmt.Errorf("waive: %w", err)
	}
	wants := profile.Guarantees().With(more...)
	for _, g := range p.Waived {
		if more.Has(g) {
			return nil, fmt.Errorf("the guarantee %s is both required and waived", g)
		}
		if !wants.Has(g) {
			return nil, fmt.Errorf("profile %s has no guarantee %s to waive", profile, g)
		}
	}
	p.Need = wants.Without(p.Waived)
	switch i.Mechanism {
	case "", Namespaces, Landlock, GVisor:
	default:
		return nil, fmt.Errorf("no isolation mechanism %q: there are %s, %s, %s", i.Mechanism, Namespaces, Landlock, GVisor)
	}
	if !wants.Has(Proxied) && (len(i.Hosts) > 0 || len(i.DeniedHosts) > 0 || len(i.Secrets) > 0 || i.AskHosts || i.Proxy != "") {
		return nil, fmt.Errorf("hosts need the guarantee NP, which profile %s has not: use profile %s", profile, NetAllow)
	}
	if wants.Has(Proxied) {
		if p.Rules, err = egress.ParseRules(i.Hosts, i.DeniedHosts); err != nil {
			return nil, err
		}
	}
	if i.Proxy != "" {
		at, err := netip.ParseAddrPort(i.Proxy)
		if err != nil || !at.Addr().IsLoopback() || at.Port() == 0 {
			return nil, fmt.Errorf("the proxy %q is not an address of this machine such as 127.0.0.1:3128", i.Proxy)
		}
		if len(i.Hosts) > 0 || len(i.DeniedHosts) > 0 || len(i.Secrets) > 0 || i.AskHosts {
			return nil, errors.New("hosts and a proxy exclude each other: the proxy decides about hosts")
		}
		p.Proxy = at.String()
	}
	if wants.Has(Proxied) && wants.Has(NoNetwork) {
		return nil, errors.New("the guarantees N0 and NP exclude each other")
	}
	if len(i.Readable) > 0 && !wants.Has(Reads) {
		return nil, fmt.Errorf("readable paths need the guarantee R, which profile %s has not", profile)
	}
	if i.Bare && !wants.Has(Reads) {
		return nil, fmt.Errorf("a bare tree needs the guarantee R, which profile %s has not", profile)
	}
	writable := i.Writable
	if len(writable) == 0 && profile != ReadOnly && wants.Has(Writes) {
		writable = []string{"."}
	}
	if p.Writable, err = paths("writable", writable, []string{p.Cwd}); err != nil {
		return nil, err
	}
	if len(i.Protected) > 0 && !wants.Has(Protects) {
		return nil, fmt.Errorf("protected paths need the guarantee P, which profile %s has not: use profile %s", profile, WorkspaceWrite)
	}
	if p.Protected, err = paths("protected", i.Protected, p.Writable); err != nil {
		return nil, err
	}
	if p.Readable, err = paths("readable", i.Readable, []string{p.Cwd}); err != nil {
		return nil, err
	}
	hidden := slices.Clone(i.Hidden)
	for _, text := range i.Secrets {
		s, err := parseSecret(text)
		if err != nil {
			return nil, err
		}
		if !filepath.IsAbs(s.file) {
			s.file = filepath.Join(p.Cwd, s.file)
		}
		p.secrets = append(p.secrets, s)
		hidden = append(hidden, s.file) // the run must not have it
	}
	if p.Hidden, err = paths("hidden", hidden, []string{p.Cwd}); err != nil {
		return nil, err
	}
	for _, path := range p.Protected {
		if !slices.ContainsFunc(p.Writable, func(root string) bool { return Below(root, path) }) {
			return nil, fmt.Errorf("the protected path %s is below no writable path", path)
		}
	}
	return p, nil
}

// paths makes every path absolute below each base, sorted so that a directory
// comes before what is in it.
func paths(what string, list, bases []string) ([]string, error) {
	var result []string
	for _, path := range list {
		if path == "" || strings.ContainsRune(path, 0) {
			return nil, fmt.Errorf("%s path %q: not a path", what, path)
		}
		if filepath.IsAbs(path) {
			result = append(result, filepath.Clean(path))
			continue
		}
		for _, base := range bases {
			joined := filepath.Join(base, path)
			if !Below(base, joined) {
				return nil, fmt.Errorf("%s path %q: it leads out of %s", what, path, base)
			}
			result = append(result, joined)
		}
	}
	slices.Sort(result)
	return slices.Compact(result), nil
}

// Below reports whether a clean path is a directory itself or in it.
func Below(dir, path string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// Report is what a run with the policy has, for [spool.Info].
func (p *Policy) Report(request *spool.Isolation, mechanism string, has Set) *spool.Isolation {
	r := *request
	r.Profile = string(p.Profile)
	r.Mechanism = mechanism
	r.Guarantees = has.Strings()
	return &r
}
