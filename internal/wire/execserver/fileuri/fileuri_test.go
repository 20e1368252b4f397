package fileuri_test

import (
	"errors"
	"path"
	"runtime"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
)

func TestParse(t *testing.T) {
	for _, tt := range []struct{ uri, want string }{
		{"file:///tmp/a", "/tmp/a"},
		{"file:/tmp", "/tmp"},
		{"file:tmp", "/tmp"},
		{"FILE:/tmp", "/tmp"},
		{" file:///tmp \x00", "/tmp"},
		{"fi\tle:///tm\np", "/tmp"},
		{`file:\\\tmp`, "/tmp"},
		{`file:///tmp\a`, "/tmp/a"},
		{"file://localhost/tmp", "/tmp"},
		{"file://%6cocalHOST/tmp", "/tmp"},
		{"file:", "/"},
		{"file://", "/"},
		{"file:///", "/"},
		{"file://localhost", "/"},
		{"file:.", "/"},
		{"file:..", "/"},
		{"file:///tmp/%2e%2E/x/.%2e/y/%2e", "/y"},
		{"file:///../../tmp//d/", "/tmp/d"},
		{"file:////tmp", "/tmp"},
		{"file://///tmp", "/tmp"},
		{"file:////tmp/..", "/"},
		{"file:///tmp%2fa", "/tmp/a"},
		{"file:///tmp%2f..%2fa", "/a"},
		{"file:///tmp%", "/tmp%"},
		{"file:///tmp%zz%4", "/tmp%zz%4"},
		{"file:///a b/é", "/a b/é"},
		{"file:///bad%ff%FE", "/bad\xff\xfe"},
		{"file:///raw\xff", "/raw\xff"},
		{"file:///nl%0ax", "/nl\nx"},
		{"file:///c|/x", "/c|/x"},
		{"file:///C:x", "/C:x"},
		{"file:///C%7C/x", "/C|/x"},
		{"file:///tmp/C:/x", "/tmp/C:/x"},
	} {
		got, err := fileuri.Parse(tt.uri)
		if err != nil || got != tt.want {
			t.Errorf("Parse(%q) = %q, %v; want %q", tt.uri, got, err, tt.want)
		}
	}
}

func TestParseRejectsAtParseTime(t *testing.T) {
	for _, tt := range []struct{ uri, want string }{
		{"/tmp", "invalid URI: relative URL without a base"},
		{"", "invalid URI: relative URL without a base"},
		{":", "invalid URI: relative URL without a base"},
		{"1a:b", "invalid URI: relative URL without a base"},
		{"a_b:c", "invalid URI: relative URL without a base"},
		{"file", "invalid URI: relative URL without a base"},
		{"http://x/tmp", "unsupported path URI scheme `http`"},
		{"HTTP://x/tmp", "unsupported path URI scheme `http`"},
		{`C:\x`, "unsupported path URI scheme `c`"},
		{"file:///tmp?x", "query parameters are not allowed in path URIs"},
		{"file:///tmp?", "query parameters are not allowed in path URIs"},
		{"file:///tmp?a#b", "query parameters are not allowed in path URIs"},
		{"file:///tmp#", "fragments are not allowed in path URIs"},
		{"file:///tmp#a?b", "fragments are not allowed in path URIs"},
		{"file://a b/tmp", "invalid URI: invalid international domain name"},
		{"file://user@host/tmp", "invalid URI: invalid international domain name"},
		{"file://host:80/tmp", "invalid URI: invalid international domain name"},
		{"file://exa%00mple/tmp", "invalid URI: invalid international domain name"},
		{"file://[::z]/tmp", "invalid URI: invalid IPv6 address"},
		{"file:///tmp%00", "'file:///tmp%00' is invalid on '" + runtime.GOOS + "'"},
		{"file:///a\x00b", "'file:///a%00b' is invalid on '" + runtime.GOOS + "'"},
	} {
		got, err := fileuri.Parse(tt.uri)
		var e *fileuri.SyntaxError
		if !errors.As(err, &e) || err.Error() != tt.want {
			t.Errorf("Parse(%q) = %q, %v; want a syntax error %q", tt.uri, got, err, tt.want)
		}
	}
}

func TestParseRejectsOtherHosts(t *testing.T) {
	for _, tt := range []struct{ uri, want string }{
		{"file://other/tmp", "file://other/tmp"},
		{"file://other", "file://other/"},
		{"file://127.0.0.1/tmp", "file://127.0.0.1/tmp"},
		{"file://[::1]/tmp", "file://[::1]/tmp"},
		{"file:///C:/x", "file:///C:/x"},
		{"file:C:/x", "file:///C:/x"},
		{"file:///C:", "file:///C:"},
		{"file:///C%3A/x", "file:///C%3A/x"},
		{"file://C:/x", "file:///C:/x"},
		{"file://host/C:/x", "file:///C:/x"},
		{"file:///C:/../tmp", "file:///C:/tmp"},
		{"file:///tmp/../C:/x", "file:///C:/x"},
		{"file:/C|/x", "file:///C:/x"},
	} {
		got, err := fileuri.Parse(tt.uri)
		var e *fileuri.HostError
		if !errors.As(err, &e) || e.URI != tt.want {
			t.Errorf("Parse(%q) = %q, %v; want a host error for %q", tt.uri, got, err, tt.want)
		}
		if err != nil && !strings.HasPrefix(err.Error(), "'"+tt.want+"' is invalid on '") {
			t.Errorf("Parse(%q): text %q", tt.uri, err)
		}
	}
}

func TestFormat(t *testing.T) {
	for _, tt := range []struct{ path, want string }{
		{"/", "file:///"},
		{"", "file:///"},
		{"/a//../b/", "file:///b"},
		{"/a b\"#%<>?\\`{}", "file:///a%20b%22%23%25%3C%3E%3F%5C%60%7B%7D"},
		{"/[]|^'$&+,;=@!*()~:", "file:///[]|^'$&+,;=@!*()~:"},
		{"/nl\n\x7fé\xff", "file:///nl%0A%7F%C3%A9%FF"},
		{"/%2e%2e", "file:///%252e%252e"},
	} {
		if got := fileuri.Format(tt.path); got != tt.want {
			t.Errorf("Format(%q) = %q, want %q", tt.path, got, tt.want)
		}
	}
}

func FuzzFormatParse(f *testing.F) {
	for _, s := range []string{"/", "/a/b", "/a b#%?\\", "/\xff\n", "/a//../b", "/C|/x", "/%2e./c", "//host/x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, p string) {
		p = path.Clean("/" + p)
		first, _, _ := strings.Cut(p[1:], "/")
		if strings.IndexByte(p, 0) >= 0 || len(first) == 2 && first[1] == ':' {
			return // no URI in this dialect
		}
		uri := fileuri.Format(p)
		got, err := fileuri.Parse(uri)
		if err != nil || got != p {
			t.Fatalf("Parse(%q) = %q, %v; want %q", uri, got, err, p)
		}
	})
}

func FuzzParse(f *testing.F) {
	for _, s := range []string{"file:///a", "file:a", "file://h/x", "file:C|/..", "http:", "file:///%zz%ff?x", "file://[::1]/", "file:\\\\x\\.."} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		p, err := fileuri.Parse(s)
		if err != nil {
			return
		}
		if !path.IsAbs(p) || path.Clean(p) != p || strings.IndexByte(p, 0) >= 0 {
			t.Fatalf("Parse(%q) = %q, which is not an absolute clean path", s, p)
		}
	})
}
