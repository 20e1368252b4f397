package execserver

import (
	"encoding/json"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// sandboxHint tells the user what to do about a sandbox that is refused.
const sandboxHint = "so the request is refused instead of being run without it; " +
	"use another sandbox mode, or run codex with `--sandbox danger-full-access` and isolate the server itself"

// sandboxType is what a start with a sandbox object answers. As with codex it
// does not depend on what the object restricts.
func sandboxType(raw json.RawMessage) string {
	if isNull(raw) {
		return "none"
	}
	return "linuxSeccomp"
}

// processIsolation returns the isolation of a process that a sandbox object asks
// for, or nil. What cannot be enforced is an error: a client does not check
// whether a sandbox was applied, so that ignoring it would run code unconfined.
//
// A managed network is one of which the process reaches only a proxy.
func processIsolation(raw json.RawMessage, cwd string, managed bool) (*spool.Isolation, error) {
	s, err := parseSandbox(raw)
	if err != nil || s == nil {
		return nil, err
	}
	if s.place.cwd != nil {
		if _, err := fileuri.Parse(*s.place.cwd); err != nil {
			return nil, rpc.Errorf(rpc.CodeInvalidParams, "sandbox cwd URI `%s` is not valid on this exec-server host: %s", *s.place.cwd, err)
		}
	}
	var r *rules
	if s.files != nil {
		if r, err = s.resolveRules(cwd, rpc.CodeInvalidParams); err != nil {
			return nil, err
		}
	}
	switch {
	case r != nil && !r.writesAll && s.landlock:
		return nil, errLandlock
	case r != nil && !r.writesAll:
		return r.isolation(s.network, managed)
	case s.network, managed:
		i := newIsolation(s.network, managed)
		i.Profile, i.Writable = "workspace-write", []string{"/"}
		return i, nil
	}
	return nil, nil
}

// newIsolation returns an isolation that restricts only the network.
func newIsolation(network, managed bool) *spool.Isolation {
	i := &spool.Isolation{Profile: "read-only", HostTmp: true}
	switch {
	case managed:
		i.Guarantees = append(i.Guarantees, "NP")
	case network:
		i.Guarantees = append(i.Guarantees, "N0")
	}
	return i
}

// isolation returns the isolation of a process with the rules.
func (r *rules) isolation(network, managed bool) (*spool.Isolation, error) {
	i := newIsolation(network, managed)
	if r.at("/") == nil {
		i.Guarantees = append(i.Guarantees, "R")
		i.Bare = true
		if r.minimal {
			i.Readable = append(i.Readable, existing(platformPaths)...)
		}
	}
	for _, one := range r.list {
		outer := r.nearest(filepath.Dir(one.path))
		switch {
		case one.path == "/" && one.access == accessRead:
		case one.access == accessWrite:
			i.Writable = append(i.Writable, one.path)
		case outer != nil && outer.path != one.path && outer.access == accessWrite && (one.access == accessRead || one.missing):
			// What this user cannot create needs no protection.
			if !one.protects || !one.missing || unix.Access(filepath.Dir(one.path), unix.W_OK) == nil {
				i.Protected = append(i.Protected, one.path)
			}
		case one.access == accessDeny && !one.missing:
			i.Hidden = append(i.Hidden, one.path)
		case i.Bare && one.access == accessRead && !one.missing:
			i.Readable = append(i.Readable, one.asked)
		}
	}
	for _, g := range r.globs {
		found, err := g.find(i.Writable)
		if err != nil {
			return nil, err
		}
		i.Hidden = append(i.Hidden, found...)
	}
	for _, list := range []*[]string{&i.Hidden, &i.Readable} {
		slices.Sort(*list)
		*list = slices.Compact(*list)
	}
	if len(i.Writable) > 0 {
		i.Profile = "workspace-write"
	}
	return i, nil
}

// existing returns the paths that exist.
func existing(paths []string) []string {
	return slices.DeleteFunc(slices.Clone(paths), func(path string) bool {
		_, err := os.Lstat(path)
		return err != nil
	})
}

// enters reports whether a process with the isolation can have a directory as its
// working directory.
func enters(i *spool.Isolation, dir string) bool {
	dir, _ = realRulePath(dir)
	nearest := func(list []string) (best string) {
		for _, path := range list {
			if path, _ = realRulePath(path); below(path, dir) && len(path) > len(best) {
				best = path
			}
		}
		return best
	}
	leads := func(list []string) bool {
		return slices.ContainsFunc(list, func(path string) bool {
			path, _ = realRulePath(path)
			return below(dir, path)
		})
	}
	hidden, writable := nearest(i.Hidden), nearest(i.Writable)
	switch {
	case len(hidden) > len(writable):
		return leads(i.Writable)
	case !i.Bare || writable != "" || nearest(i.Readable) != "":
		return true
	}
	return dir == "/" || leads(i.Writable) || leads(i.Readable)
}

// settle has a process whose isolation hides its working directory start in its
// home directory, or in the root, as codex does.
func settle(spec *spool.Spec) {
	if spec.Isolation == nil || enters(spec.Isolation, spec.Cwd) {
		return
	}
	home := spec.Env["HOME"]
	if home == "" && spec.EnvPolicy != nil && spec.EnvPolicy.Inherit != "none" {
		home = os.Getenv("HOME")
	}
	spec.Cwd = "/"
	if info, err := os.Stat(home); filepath.IsAbs(home) && err == nil && info.IsDir() && enters(spec.Isolation, home) {
		spec.Cwd = home
	}
}

// maxGlobEntries is how many names a search for the paths of a pattern examines.
const maxGlobEntries = 200_000

// find returns the paths that the pattern matches now. As with codex, what is
// created later is not denied to a process that runs.
//
// A symbolic link is denied as what it leads to, and cannot be below a writable path.
func (g glob) find(writable []string) ([]string, error) {
	s := globSearch{glob: g, writable: writable}
	err := filepath.WalkDir(g.base, s.visit)
	return s.found, err
}

// globSearch is a search for the paths of a pattern.
type globSearch struct {
	glob
	writable []string
	examined int
	found    []string
}

// visit implements [fs.WalkDirFunc].
func (s *globSearch) visit(path string, e fs.DirEntry, err error) error {
	if s.examined++; s.examined > maxGlobEntries {
		return rpc.Errorf(rpc.CodeInvalidParams, "sandbox denies a pattern in %s, which has more than %d files, %s", s.base, maxGlobEntries, sandboxHint)
	}
	switch {
	case err != nil:
		return nil //nolint:nilerr // what cannot be read here cannot be read by the process
	case !s.matches(path):
		return nil
	case e.Type()&fs.ModeSymlink != 0:
		if err := checkLinks("deny-read", path, s.writable); err != nil {
			return err
		}
		if real, missing := realRulePath(path); !missing {
			s.found = append(s.found, real)
		}
		return nil
	}
	s.found = append(s.found, path)
	if e.IsDir() {
		return filepath.SkipDir
	}
	return nil
}
