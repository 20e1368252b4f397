// Package fileuri parses and formats the file: URIs that stand for paths in the
// exec-server dialect.
//
// Parsing follows the WHATWG URL rules for the file scheme, because clients
// build their URIs with them: the scheme is case-insensitive, slashes may be
// missing or backward, tabs and newlines are ignored, and dot segments are
// resolved in the URI, not in the file system. Percent-encoded bytes are kept
// unchanged, whether or not they are UTF-8.
package fileuri

import (
	"fmt"
	"net/netip"
	"net/url"
	"path"
	"runtime"
	"strings"
	"unicode/utf8"
)

// A SyntaxError reports that a string is not a URI of a path on any machine.
type SyntaxError struct {
	Message string
}

func (e *SyntaxError) Error() string { return e.Message }

// A HostError reports a well-formed URI that names no path on this machine: it
// has another host, or begins with a drive letter.
type HostError struct {
	URI string // after normalization
}

func (e *HostError) Error() string { return invalidHere(e.URI) }

// Parse returns the path that a file: URI names: absolute and clean. The error
// is a [*SyntaxError] or a [*HostError].
func Parse(s string) (string, error) {
	s = strings.TrimFunc(s, func(r rune) bool { return r <= ' ' })
	s = strings.Map(func(r rune) rune {
		if r == '\t' || r == '\n' || r == '\r' {
			return -1
		}
		return r
	}, toUTF8(s))
	scheme, rest, ok := cutScheme(s)
	if !ok {
		return "", &SyntaxError{"invalid URI: relative URL without a base"}
	}
	if scheme != "file" {
		return "", &SyntaxError{fmt.Sprintf("unsupported path URI scheme `%s`", scheme)}
	}
	var problem string
	if i := strings.IndexAny(rest, "?#"); i >= 0 {
		problem = "fragments are not allowed in path URIs"
		if rest[i] == '?' {
			problem = "query parameters are not allowed in path URIs"
		}
		rest = rest[:i]
	}
	rest = strings.ReplaceAll(rest, `\`, "/")

	var host string
	drives := true // treat a bar as the colon of a drive
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		h, p, _ := strings.Cut(after, "/")
		if isDrive(h, true) { // file://C:/x is file:///C:/x
			rest = after
		} else {
			var err error
			if host, err = parseHost(h); err != nil {
				return "", err
			}
			rest, drives = p, false
		}
	} else {
		rest = strings.TrimPrefix(rest, "/")
	}
	if problem != "" {
		return "", &SyntaxError{problem}
	}
	segments := resolve(rest, drives)
	p := unescape("/" + strings.Join(segments, "/"))
	if isDrive(unescape(segments[0]), false) {
		return "", &HostError{"file://" + normalized(segments)}
	}
	if strings.IndexByte(p, 0) >= 0 {
		return "", &SyntaxError{invalidHere("file://" + host + normalized(segments))}
	}
	if host != "" {
		return "", &HostError{"file://" + host + normalized(segments)}
	}
	return path.Clean(p), nil
}

// Format returns the URI of an absolute path, which it cleans first.
//
// [Parse] returns the path again, unless its first element is a drive letter
// and a colon: such a path has no URI in this dialect.
func Format(p string) string {
	p = path.Clean("/" + p)
	var b strings.Builder
	b.Grow(len("file://") + len(p))
	b.WriteString("file://")
	escape(&b, p, "\"#%<>?\\`{}")
	return b.String()
}

// toUTF8 percent-encodes the bytes of s that are not UTF-8.
func toUTF8(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			fmt.Fprintf(&b, "%%%02X", s[0])
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}

// cutScheme splits off the scheme, in lower case.
func cutScheme(s string) (scheme, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(s, ":")
	if !ok || scheme == "" {
		return "", "", false
	}
	for i := range len(scheme) {
		c := scheme[i] | 0x20
		letter := 'a' <= c && c <= 'z'
		other := '0' <= scheme[i] && scheme[i] <= '9' || strings.IndexByte("+-.", scheme[i]) >= 0
		if !letter && (i == 0 || !other) {
			return "", "", false
		}
	}
	return strings.ToLower(scheme), rest, true
}

// parseHost checks a host and returns it in lower case, or "" for this machine.
func parseHost(h string) (string, error) {
	if inner, ok := strings.CutPrefix(h, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		if a, err := netip.ParseAddr(inner); !ok || err != nil || !a.Is6() || a.Zone() != "" {
			return "", &SyntaxError{"invalid URI: invalid IPv6 address"}
		}
		return strings.ToLower(h), nil
	}
	h = strings.ToLower(unescape(h))
	if !utf8.ValidString(h) || strings.ContainsFunc(h, func(r rune) bool {
		return r <= ' ' || r == 0x7f || strings.ContainsRune(`#%/:<>?@[\]^|`, r)
	}) {
		return "", &SyntaxError{"invalid URI: invalid international domain name"}
	}
	if h == "localhost" {
		return "", nil
	}
	return h, nil
}

// resolve splits a path at its slashes and resolves dot segments. With drives
// it treats a first segment such as "C|" as "C:".
func resolve(p string, drives bool) []string {
	var segments []string
	all := strings.Split(p, "/")
	for i, s := range all {
		last := i == len(all)-1
		switch strings.ReplaceAll(strings.ToLower(s), "%2e", ".") {
		case ".":
			if last {
				segments = append(segments, "")
			}
			continue
		case "..":
			if n := len(segments); n > 1 || n == 1 && !isDrive(segments[0], false) {
				segments = segments[:n-1]
			}
			if last {
				segments = append(segments, "")
			}
			continue
		}
		if drives && len(segments) == 0 && isDrive(s, true) {
			s = s[:1] + ":"
		}
		segments = append(segments, s)
	}
	return segments
}

// isDrive reports whether s is a letter and a colon, or also a bar.
func isDrive(s string, bar bool) bool {
	if len(s) != 2 || s[1] != ':' && !(bar && s[1] == '|') {
		return false
	}
	c := s[0] | 0x20
	return 'a' <= c && c <= 'z'
}

// unescape decodes percent-encoded bytes and keeps other percent signs.
func unescape(s string) string {
	if strings.IndexByte(s, '%') < 0 {
		return s
	}
	b := make([]byte, 0, len(s))
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) {
			if c, err := url.PathUnescape(s[i : i+3]); err == nil {
				b = append(b, c...)
				i += 2
				continue
			}
		}
		b = append(b, s[i])
	}
	return string(b)
}

// normalized writes segments as the path of a URI and keeps their
// percent-encoding.
func normalized(segments []string) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteByte('/')
		escape(&b, s, "\"#<>?`{}")
	}
	return b.String()
}

// escape percent-encodes control characters, spaces, non-ASCII bytes, and the
// characters of set.
func escape(b *strings.Builder, s, set string) {
	const digits = "0123456789ABCDEF"
	for i := range len(s) {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(set, c) >= 0 {
			b.WriteByte('%')
			b.WriteByte(digits[c>>4])
			b.WriteByte(digits[c&15])
		} else {
			b.WriteByte(c)
		}
	}
}

func invalidHere(uri string) string {
	system := runtime.GOOS
	if system == "darwin" {
		system = "macos"
	}
	return fmt.Sprintf("'%s' is invalid on '%s'", uri, system)
}
