package cli

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/python"
)

// filtered returns what a terminal gets of output that is written in two parts.
func filtered(t *testing.T, output []byte, cut int) []byte {
	t.Helper()
	var shown bytes.Buffer
	f := &screenFilter{w: &shown}
	for _, part := range [][]byte{output[:cut], output[cut:]} {
		if n, err := f.Write(part); n != len(part) || err != nil {
			t.Fatal(n, err)
		}
	}
	return shown.Bytes()
}

// FuzzScreen checks that the filter of a terminal lets nothing through that asks
// the terminal or reaches beyond the screen, wherever the output is divided, and
// that there is nothing left to filter after it.
func FuzzScreen(f *testing.F) {
	f.Add([]byte("plain \x1b[31mred\x1b[0m\r\n\x1b[?1049h"), uint16(8))
	f.Add([]byte("\x1b]52;c;aGk=\x07a\x1b]0;t\x1b\\b\x1bPq\x1b\\c\x1b[6nd\x1b[>qe"), uint16(3))
	f.Add([]byte("\x1b\x05\x1b[1\x052m\x05"), uint16(2))
	f.Add([]byte("a\u202eb\u200bc\xff\xe2\x80"), uint16(5))
	f.Fuzz(func(t *testing.T, output []byte, cut uint16) {
		shown := filtered(t, output, 0)
		if len(shown) > len(output) {
			t.Fatalf("%q became longer: %q", output, shown)
		}
		if divided := filtered(t, output, min(int(cut), len(output))); !bytes.Equal(shown, divided) {
			t.Fatalf("%q is shown as %q, and divided as %q", output, shown, divided)
		}
		shown = append(shown, '\n') // ends a character that is incomplete
		if again := filtered(t, shown, 0); !bytes.Equal(shown, again) {
			t.Fatalf("%q is shown as %q, of which %q is let through", output, shown, again)
		}
		if bytes.IndexByte(shown, 0x05) >= 0 || bytes.Contains(shown, []byte("\x1b]")) || bytes.Contains(shown, []byte("\x1bP")) {
			t.Fatalf("%q is shown as %q", output, shown)
		}
	})
}

// FuzzPlain checks that text for a list or a question is on one line and hides
// nothing.
func FuzzPlain(f *testing.F) {
	f.Add("a\nb\x1b[31m\u202e\U000e0041\x00")
	f.Add("\xff\u0085\u3164")
	f.Fuzz(func(t *testing.T, s string) {
		got := plain(s)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return unicode.IsControl(r) || isHidden(r) }) {
			t.Errorf("%q is shown as %q", s, got)
		}
		if plain(got) != got {
			t.Errorf("%q is shown as %q, and that as %q", s, got, plain(got))
		}
	})
}

// FuzzByteCount checks that a number of bytes is not negative and means the same
// once it is written out.
func FuzzByteCount(f *testing.F) {
	for _, s := range []string{"4096", "64K", "10MiB", "2g", "1T", "9223372036854775807", "4611686018427387905K", "-1", "K", "0x10"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var c, again byteCount
		if c.Set(s) != nil {
			return
		}
		if c < 0 {
			t.Fatalf("%q is %d bytes", s, c)
		}
		if text := c.String(); c > 0 && (again.Set(text) != nil || again != c) {
			t.Fatalf("%q is %d bytes, and %q is %d", s, c, text, again)
		}
		if formatBytes(int64(c)) == "" {
			t.Fatalf("%d bytes have no text", c)
		}
	})
}

// FuzzAnswer checks that only one key answers an approval, and only with one of
// its choices.
func FuzzAnswer(f *testing.F) {
	f.Add("y", true)
	f.Add("\x1b[A", true)
	f.Add("1", false)
	f.Add("+1", true)
	f.Add("yes\n", true)
	f.Add("", false)
	f.Fuzz(func(t *testing.T, typed string, approval bool) {
		q := &spool.Ask{Kind: agent.AskQuestion, Options: []spool.AskOption{{ID: "first"}, {ID: "second"}}}
		if approval {
			q.Kind = agent.AskApproval
		}
		key, ok := findKey(answerKeys(q), typed)
		if !ok {
			return
		}
		if n := utf8.RuneCountInString(strings.TrimRight(typed, "\r\n")); n != 1 {
			t.Errorf("%q, which is %d characters, is the choice %q", typed, n, key.decision.Choice)
		}
		switch key.decision.Choice {
		case "first", "second":
		case agent.Allow, agent.AllowSession, agent.Deny, agent.DenyStop:
			if !approval {
				t.Errorf("%q is the choice %q of a question", typed, key.decision.Choice)
			}
		default:
			t.Errorf("%q is the choice %q", typed, key.decision.Choice)
		}
	})
}

// FuzzReadRequest checks that the lines of a program arrive one by one, and that
// one that is too long is dropped alone.
func FuzzReadRequest(f *testing.F) {
	f.Add([]byte("{\"code\":\"1\"}\n\n{\"exit\":true}"))
	f.Add(bytes.Repeat([]byte("x"), 9000))
	f.Fuzz(func(t *testing.T, stream []byte) {
		in := bufio.NewReader(bytes.NewReader(stream))
		var got []byte
		for {
			line, err := readRequest(in)
			got = append(got, line...)
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil || !bytes.HasSuffix(line, []byte("\n")) {
				t.Fatalf("line %q: %v", line, err)
			}
		}
		if !bytes.Equal(got, stream) {
			t.Fatalf("%q was read as %q", stream, got)
		}
	})
}

// FuzzNetRule checks that a request of a sandbox goes to an allowed host only,
// and that a private address is dialled only if it is allowed by address.
func FuzzNetRule(f *testing.F) {
	f.Add("http://example.org:80/x", "10.0.0.1:80")
	f.Add("http://example.org@10.0.0.1/", "[::ffff:10.0.0.1]:443")
	f.Add("https://192.168.7.7/", "192.168.7.7:443")
	f.Add("file:///etc/passwd", "[64:ff9b::7f00:1]:80")
	f.Add("HTTP://EXAMPLE.ORG./", "[fe80::1%eth0]:80")
	n := &netServices{config: python.SandboxConfig{Hosts: []string{"example.org", "192.168.7.7"}}}
	f.Fuzz(func(t *testing.T, url, address string) {
		if req, err := http.NewRequest(http.MethodGet, url, nil); err == nil && n.check(req) == nil {
			host := strings.ToLower(strings.TrimSuffix(req.URL.Hostname(), "."))
			if s := req.URL.Scheme; s != "http" && s != "https" || host != "example.org" && host != "192.168.7.7" {
				t.Errorf("%q goes to %q", url, req.URL.Host)
			}
		}
		if n.checkAddress(address) != nil {
			return
		}
		at, err := netip.ParseAddrPort(address)
		if err != nil {
			t.Fatalf("%q is dialled: %v", address, err)
		}
		ip := at.Addr().Unmap()
		if ip.String() != "192.168.7.7" && (ip.IsPrivate() || ip.IsLoopback() || ip.IsLinkLocalUnicast() || ip.IsMulticast() || ip.IsUnspecified()) {
			t.Errorf("%q is dialled", address)
		}
	})
}
