package execserver

import (
	"cmp"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// protectedNames are the names in a writable root that stay as they are, unless
// an entry makes them writable: what is in them may run, or be trusted, later.
var protectedNames = []string{".git", ".agents", ".codex", ".aws"}

// platformPaths are readable for the methods that access files, and for
// processes with the special path minimal.
var platformPaths = []string{"/bin", "/sbin", "/usr", "/etc", "/lib", "/lib64", "/nix/store", "/run/current-system/sw"}

// rules are the file permissions of a sandbox with every path absolute and
// without symbolic links. The rule of the longest path counts.
type rules struct {
	list  []rule
	globs []glob // denied
	// readsAll is whether every file may be read, writesAll whether the file
	// system is not restricted at all.
	readsAll, writesAll bool
	minimal             bool
}

// rule is the access to a path and to all below it.
type rule struct {
	path    string
	asked   string // with the symbolic links of the request
	access  accessMode
	missing bool // nothing was there when the rules were made
	// protects is whether the rule is not of the request, but protects a name in
	// a writable root.
	protects bool
}

// resolveRules resolves the file permissions of a sandbox that has some. A
// process has its own working directory, which is used if the sandbox has none.
// Codes for paths of other machines differ between methods.
func (s *sandbox) resolveRules(cwd string, foreign int) (*rules, error) {
	place := s.policyPlace()
	if place.cwd != nil {
		var err error
		if cwd, err = fileuri.Parse(*place.cwd); err != nil {
			return nil, rpc.Errorf(foreign, "%s", err)
		}
	}
	var workspace []string
	for _, uri := range place.roots {
		root, err := fileuri.Parse(uri)
		if err != nil {
			return nil, rpc.Errorf(foreign, "file system sandbox workspace root is not native to this exec-server host: %s", err)
		}
		workspace = append(workspace, root)
	}
	r := new(rules)
	var patterns []string
	var literal []rule
	for _, e := range s.files.entries {
		add := func(path string) { literal = append(literal, rule{path: filepath.Clean(path), access: e.access}) }
		switch {
		case e.pattern != "" && e.access == accessDeny:
			list, err := s.absolutePatterns(e.pattern, cwd, workspace)
			if err != nil {
				return nil, err
			}
			patterns = append(patterns, list...)
		case e.path != "":
			path, err := fileuri.Parse(e.path)
			if err != nil {
				return nil, rpc.Errorf(foreign, "invalid sandbox permission path URI: %s", err)
			}
			add(path)
		case e.special == "root":
			add("/")
		case e.special == "project_roots":
			for _, root := range workspace {
				if path := filepath.Join(root, e.subpath); below(root, path) && !filepath.IsAbs(e.subpath) {
					add(path)
				} else if e.access != accessWrite {
					literal = append(literal, rule{path: root, access: accessDeny})
				}
			}
		case e.special == "tmpdir":
			if dir := os.Getenv("TMPDIR"); filepath.IsAbs(dir) {
				add(dir)
			}
		case e.special == "slash_tmp":
			add("/tmp")
		case e.special == "minimal" && e.access != accessDeny:
			r.minimal = true
		}
	}
	if err := r.resolve(literal); err != nil {
		return nil, err
	}
	for _, pattern := range patterns {
		g, err := newGlob(pattern)
		if err != nil {
			return nil, err
		}
		r.globs = append(r.globs, g)
	}
	r.readsAll = s.files.readsAll()
	root := r.at("/")
	r.writesAll = root != nil && root.access == accessWrite && len(r.globs) == 0 && !slices.ContainsFunc(r.list, func(one rule) bool {
		return !one.protects && one.access != accessWrite
	})
	return r, nil
}

// policyPlace is what the permissions are relative to.
func (s *sandbox) policyPlace() sandboxPlace {
	if s.context == nil {
		return s.place
	}
	place := *s.context
	if place.cwd == nil {
		place.cwd = s.place.cwd
	}
	return place
}

// checkDynamic refuses permissions that depend on a missing working directory.
func (s *sandbox) checkDynamic() error {
	if s.policyPlace().cwd == nil && s.files.dynamic() {
		return rpc.Errorf(rpc.CodeInvalidParams, "file system sandbox context with dynamic permissions requires cwd")
	}
	return nil
}

// dynamic reports whether entries depend on the working directory.
func (p *filePermissions) dynamic() bool {
	return slices.ContainsFunc(p.entries, func(e permission) bool {
		return e.special == "project_roots" || e.pattern != ""
	})
}

// readsAll reports whether every file may be read.
func (p *filePermissions) readsAll() bool {
	all := false
	for _, e := range p.entries {
		if e.access == accessDeny {
			return false
		}
		all = all || e.special == "root"
	}
	return all
}

// absolutePatterns returns a glob pattern of the request as absolute patterns.
func (s *sandbox) absolutePatterns(pattern, cwd string, workspace []string) ([]string, error) {
	if rest, ok := strings.CutPrefix(pattern, "codex-project-roots://"); ok {
		var list []string
		for _, root := range workspace {
			list = append(list, path.Join(root, rest))
		}
		return list, nil
	}
	if rest, ok := strings.CutPrefix(pattern, "~/"); ok {
		home, err := os.UserHomeDir()
		if s.home != "" {
			home, err = fileuri.Parse(s.home)
		}
		if err != nil {
			return nil, rpc.Errorf(rpc.CodeInternal, "unable to resolve deny-read glob pattern `%s` without executor home", pattern)
		}
		return []string{path.Join(home, rest)}, nil
	}
	if path.IsAbs(pattern) {
		return []string{path.Clean(pattern)}, nil
	}
	return []string{path.Join(cwd, pattern)}, nil
}

// resolve resolves the symbolic links of the rules and adds the rules that
// protect names in writable roots.
func (r *rules) resolve(literal []rule) error {
	var writable []string
	for _, one := range literal {
		real, missing := realRulePath(one.path)
		if one.access == accessWrite && missing {
			continue // nothing can be created there
		}
		if one.access == accessWrite {
			writable = append(writable, real)
		}
		r.add(rule{path: real, asked: one.path, access: one.access, missing: missing})
	}
	for _, one := range literal {
		if one.access == accessWrite {
			continue
		}
		kind := "read-only"
		if one.access == accessDeny {
			kind = "deny-read"
		}
		if err := checkLinks(kind, one.path, writable); err != nil {
			return err
		}
	}
	// Nothing is allowed that no rule allows, so that this rule says nothing.
	r.list = slices.DeleteFunc(r.list, func(one rule) bool { return one.path == "/" && one.access == accessDeny })
	requested := slices.Clone(r.list)
	for _, root := range writable {
		if one := r.at(root); one == nil || one.access != accessWrite || isWritesAll(requested) {
			continue // another entry for the same path counts
		}
		if info, err := os.Lstat(root); err != nil || !info.IsDir() {
			continue
		}
		for _, name := range protectedNames {
			path := filepath.Join(root, name)
			if slices.ContainsFunc(requested, func(one rule) bool { return one.path == path }) {
				continue
			}
			if err := checkLinks("read-only", path, []string{root}); err != nil {
				return err
			}
			info, err := os.Lstat(path)
			r.add(rule{path: path, access: accessRead, missing: err != nil, protects: true})
			if name == ".git" && err == nil && info.Mode().IsRegular() {
				if dir, ok := gitDirectory(path); ok && !slices.ContainsFunc(requested, func(one rule) bool { return one.path == dir }) {
					r.add(rule{path: dir, access: accessRead, protects: true})
				}
			}
		}
	}
	return nil
}

// isWritesAll reports whether the rules allow to write everything.
func isWritesAll(list []rule) bool {
	return slices.ContainsFunc(list, func(one rule) bool { return one.path == "/" && one.access == accessWrite }) &&
		!slices.ContainsFunc(list, func(one rule) bool { return one.access != accessWrite })
}

// add adds a rule. Of two rules for the same path the one with the larger access
// counts. The list is sorted by path.
func (r *rules) add(one rule) {
	i, found := slices.BinarySearchFunc(r.list, one, func(a, b rule) int { return cmp.Compare(a.path, b.path) })
	switch {
	case !found:
		r.list = slices.Insert(r.list, i, one)
	case r.list[i].access < one.access:
		r.list[i] = one
	}
}

// at returns the rule for exactly this path, or nil.
func (r *rules) at(path string) *rule {
	for i := range r.list {
		if r.list[i].path == path {
			return &r.list[i]
		}
	}
	return nil
}

// nearest returns the rule that counts for a path, or nil.
func (r *rules) nearest(path string) *rule {
	var best *rule
	for i := range r.list {
		one := &r.list[i]
		if below(one.path, path) && (best == nil || len(one.path) > len(best.path)) {
			best = one
		}
	}
	return best
}

// leads reports whether something that may be read is strictly below the path.
func (r *rules) leads(path string) bool {
	return slices.ContainsFunc(r.list, func(one rule) bool {
		return one.access != accessDeny && !one.missing && one.path != path && below(path, one.path) && !one.protects
	})
}

// realRulePath resolves the symbolic links of the part of a path that exists.
func realRulePath(path string) (real string, missing bool) {
	for rest, at := "", path; ; rest, at = filepath.Join(filepath.Base(at), rest), filepath.Dir(at) {
		if real, err := filepath.EvalSymlinks(at); err == nil {
			return filepath.Join(real, rest), rest != ""
		}
		if at == "/" {
			return path, true
		}
	}
}

// checkLinks refuses a path that has a symbolic link below a writable root: the
// process could replace the link.
func checkLinks(kind, path string, writable []string) error {
	parent := filepath.Dir(path)
	if real, _ := realRulePath(parent); !slices.ContainsFunc(writable, func(root string) bool { return below(root, real) || below(root, parent) }) {
		return nil
	}
	at := "/"
	for name := range strings.SplitSeq(strings.TrimPrefix(path, "/"), "/") {
		at = filepath.Join(at, name)
		info, err := os.Lstat(at)
		if err != nil {
			return nil
		}
		real, _ := realRulePath(filepath.Dir(at))
		if info.Mode()&os.ModeSymlink != 0 && slices.ContainsFunc(writable, func(root string) bool { return below(root, real) }) {
			return rpc.Errorf(rpc.CodeInternal, "cannot enforce sandbox %s path %s because it crosses writable symlink %s", kind, path, at)
		}
	}
	return nil
}

// gitDirectory returns the directory that a .git file names.
func gitDirectory(file string) (string, bool) {
	f, err := openRegular(file, os.O_RDONLY)
	if err != nil {
		return "", false
	}
	defer f.Close()
	buf := make([]byte, 4096)
	n, err := f.Read(buf)
	if err != nil && n == 0 {
		return "", false
	}
	tag, dir, ok := strings.Cut(strings.TrimSpace(string(buf[:n])), ":")
	dir = strings.TrimSpace(dir)
	if !ok || strings.TrimSpace(tag) != "gitdir" || dir == "" {
		return "", false
	}
	if !filepath.IsAbs(dir) {
		dir = filepath.Join(filepath.Dir(file), dir)
	}
	real, err := filepath.EvalSymlinks(dir)
	return real, err == nil
}

// visibility is what the rules make of a path.
type visibility int

const (
	hidden   visibility = iota // the path does not exist
	passage                    // a directory of which only the way to other paths is visible
	masked                     // the path exists, but cannot be opened
	sealed                     // the path is in a masked directory
	readable                   // the path may be read
	writable                   // and written
)

// see returns what the rules make of a path without symbolic links.
func (r *rules) see(path string) visibility {
	one := r.nearest(path)
	switch {
	case slices.ContainsFunc(r.globs, func(g glob) bool { return g.matches(path) }):
		for _, g := range r.globs {
			if g.matches(path) && g.root(path) != path {
				return sealed
			}
		}
		return masked
	case (one == nil || one.path == "/") && below("/proc", path):
		// The processes of this machine are not those of the sandbox.
		return hidden
	case one == nil || one.access == accessDeny:
		switch leads := r.leads(path); {
		case one != nil && one.path == path:
			return masked
		case leads:
			return passage
		case one != nil && !r.leads(one.path):
			return sealed
		}
		return hidden
	case one.access == accessWrite:
		return writable
	}
	return readable
}

// pinned reports whether a rule is for exactly this path, as if something were
// mounted there.
func (r *rules) pinned(path string) bool {
	one := r.at(path)
	return one != nil && !one.missing || slices.ContainsFunc(r.globs, func(g glob) bool { return g.matches(path) && g.root(path) == path })
}

// pinnedBelow reports whether a path strictly below is pinned.
func (r *rules) pinnedBelow(path string) bool {
	return slices.ContainsFunc(r.list, func(one rule) bool {
		return one.path != path && below(path, one.path) && !one.missing
	})
}

// withPlatform returns the rules with the paths of the platform added as
// readable.
func (r *rules) withPlatform() *rules {
	if r.at("/") != nil {
		return r
	}
	more := *r
	more.list = slices.Clone(r.list)
	for _, path := range platformPaths {
		if real, missing := realRulePath(path); !missing {
			more.add(rule{path: path, access: accessRead})
			more.add(rule{path: real, access: accessRead})
		}
	}
	return &more
}

// below reports whether a clean path is dir or below it.
func below(dir, path string) bool {
	return path == dir || dir == "/" || strings.HasPrefix(path, dir+"/")
}

// errLandlock is the error for useLegacyLandlock, which codex refuses, too.
var errLandlock = rpc.Errorf(rpc.CodeInternal, "useLegacyLandlock cannot enforce a restricted file system")
