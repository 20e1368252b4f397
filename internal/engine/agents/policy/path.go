package policy

import (
	"github.com/spool-run/spool/agent"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// matchesPaths reports whether the files of an approval are those of the
// rule. A rule that allows must match each by its name and by where that name
// leads: a link out of an allowed directory is not allowed.
func matchesPaths(r *agent.Rule, a *agent.Approval, cwd string) bool {
	if len(a.Paths) == 0 {
		return false
	}
	patterns := make([]*regexp.Regexp, 0, 2*len(r.Paths))
	for _, p := range r.Paths {
		p = absolute(p, cwd)
		patterns = append(patterns, globPath(p))
		// A pattern names a place, too, however it is reached.
		if fixed := fixedPart(p); fixed != "" {
			if real := realPath(fixed); real != fixed {
				patterns = append(patterns, globPath(real+strings.TrimPrefix(p, fixed)))
			}
		}
	}
	matches := func(path string) bool {
		for _, p := range patterns {
			if p.MatchString(path) {
				return true
			}
		}
		return false
	}
	for _, path := range a.Paths {
		path = absolute(path, a.Cwd)
		real := realPath(path)
		if r.Verdict == agent.VerdictAllow {
			if !matches(path) || !matches(real) {
				return false
			}
		} else if matches(path) || matches(real) {
			return true
		}
	}
	return r.Verdict == agent.VerdictAllow
}

func absolute(path, cwd string) string {
	if !filepath.IsAbs(path) {
		path = filepath.Join(cwd, path)
	}
	return filepath.Clean(path)
}

// fixedPart is the directory before the first wildcard of a pattern.
func fixedPart(pattern string) string {
	i := strings.IndexAny(pattern, "*?")
	if i < 0 {
		return pattern
	}
	return strings.TrimSuffix(pattern[:strings.LastIndexByte(pattern[:i], '/')+1], "/")
}

// realPath resolves the links in as much of a path as exists.
func realPath(path string) string { return followPath(path, maxLinks) }

// maxLinks is how many links to nowhere are followed, as in the kernel: it opens
// no file behind more of them.
const maxLinks = 40

func followPath(path string, links int) string {
	rest := ""
	for p := path; ; {
		real, err := filepath.EvalSymlinks(p)
		if err == nil {
			return filepath.Join(real, rest)
		}
		// A link to nowhere yet: what is written there lands at its end.
		if target, err := os.Readlink(p); err == nil && links > 0 {
			return filepath.Join(followPath(absolute(target, filepath.Dir(p)), links-1), rest)
		}
		parent := filepath.Dir(p)
		if parent == p {
			return path
		}
		rest, p = filepath.Join(filepath.Base(p), rest), parent
	}
}

// globPath translates a pattern: ** is anything, * and ? stay within a name.
func globPath(pattern string) *regexp.Regexp {
	var b strings.Builder
	b.WriteString("^(?s:")
	for i := 0; i < len(pattern); i++ {
		switch {
		case strings.HasPrefix(pattern[i:], "**/"):
			b.WriteString("(?:.*/)?")
			i += 2
		case strings.HasPrefix(pattern[i:], "**"):
			b.WriteString(".*")
			i++
		case pattern[i] == '*':
			b.WriteString("[^/]*")
		case pattern[i] == '?':
			b.WriteString("[^/]")
		default:
			// Bytes, so that a name that is not UTF-8 matches itself.
			b.WriteString(regexp.QuoteMeta(pattern[i : i+1]))
		}
	}
	b.WriteString(")$")
	re, err := regexp.Compile(b.String())
	if err != nil { // a name that no expression can hold
		return regexp.MustCompile("$.^")
	}
	return re
}
