package execserver

import (
	"encoding/json"
	"io/fs"
	"path/filepath"
	"slices"

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
		return nil, rpc.Errorf(rpc.CodeInvalidParams, "sandbox restricts the network and not the file system, which this server cannot enforce, %s", sandboxHint)
	}
	return nil, nil
}

// isolation returns the isolation of a process with the rules.
func (r *rules) isolation(network, managed bool) (*spool.Isolation, error) {
	i := &spool.Isolation{Profile: "read-only", HostTmp: true}
	switch {
	case managed:
		i.Guarantees = append(i.Guarantees, "NP")
	case network:
		i.Guarantees = append(i.Guarantees, "N0")
	}
	if r.at("/") == nil {
		if !r.minimal {
			return nil, rpc.Errorf(rpc.CodeInvalidParams, "sandbox hides the programs of the system, which this server cannot enforce, %s", sandboxHint)
		}
		i.Guarantees = append(i.Guarantees, "R")
	}
	for _, one := range r.list {
		outer := r.nearest(filepath.Dir(one.path))
		switch {
		case one.path == "/" && one.access == accessRead:
		case one.access == accessWrite:
			i.Writable = append(i.Writable, one.path)
		case outer != nil && outer.path != one.path && outer.access == accessWrite && (one.access == accessRead || one.missing):
			i.Protected = append(i.Protected, one.path)
		case one.access == accessDeny && !one.missing:
			i.Hidden = append(i.Hidden, one.path)
		case r.at("/") == nil && one.access == accessRead && !one.missing:
			i.Readable = append(i.Readable, one.path)
		}
	}
	for _, g := range r.globs {
		found, err := g.find()
		if err != nil {
			return nil, err
		}
		i.Hidden = append(i.Hidden, found...)
	}
	slices.Sort(i.Hidden)
	i.Hidden = slices.Compact(i.Hidden)
	if len(i.Writable) > 0 {
		i.Profile = "workspace-write"
	}
	return i, nil
}

// maxGlobEntries is how many names a search for the paths of a pattern examines.
const maxGlobEntries = 200_000

// find returns the paths that the pattern matches now. As with codex, what is
// created later is not denied to a process that runs.
func (g glob) find() ([]string, error) {
	s := globSearch{glob: g}
	err := filepath.WalkDir(g.base, s.visit)
	return s.found, err
}

// globSearch is a search for the paths of a pattern.
type globSearch struct {
	glob
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
		return nil // the pattern is about the file that it leads to
	}
	s.found = append(s.found, path)
	if e.IsDir() {
		return filepath.SkipDir
	}
	return nil
}
