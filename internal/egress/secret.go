package egress

import (
	"fmt"
	"net/http"
	"strings"
)

// Secret is a header that the proxy adds to requests for a host, so that the run never
// has it. It is added to requests that the proxy can read: those with a whole URL, not
// to what a tunnel carries. A request for http://HOST is sent on encrypted, as
// https://HOST, so that a secret is never sent in the clear.
type Secret struct {
	Header string
	Value  string
	host   pattern
}

// MaxSecret bounds the value of a header.
const MaxSecret = 32 << 10

// NewSecret returns a secret for a host, which is a pattern as in [ParseRules].
func NewSecret(host, header, value string) (Secret, error) {
	p, err := parsePattern(host)
	switch {
	case err != nil:
		return Secret{}, err
	case p.all:
		return Secret{}, fmt.Errorf("the secret %s is for every host: name the hosts", header)
	case !isToken(header):
		return Secret{}, fmt.Errorf("%.80q is not the name of a header", header)
	case len(value) > MaxSecret:
		return Secret{}, fmt.Errorf("the secret %s has more than %d bytes", header, MaxSecret)
	case value == "" || strings.ContainsFunc(value, isControl):
		return Secret{}, fmt.Errorf("the secret %s is empty, or has bytes that a header cannot have", header)
	}
	return Secret{Header: http.CanonicalHeaderKey(header), Value: value, host: p}, nil
}

// aim finds the secret for a request, and has the request encrypted if there is one.
func (p *Proxy) aim(r *http.Request) (*Secret, error) {
	if len(p.o.Secrets) == 0 {
		return nil, nil
	}
	port := r.URL.Port()
	if port == "" || r.URL.Scheme == "http" && port == "80" {
		port = "443"
	}
	t, err := newTarget(r.URL.Hostname(), port)
	if err != nil {
		return nil, &malformed{err}
	}
	for i, s := range p.o.Secrets {
		if !s.host.matches(t) {
			continue
		}
		if r.URL.Scheme == "http" {
			r.URL.Scheme = "https"
			r.URL.Host = strings.TrimSuffix(t.String(), ":443")
		}
		return &p.o.Secrets[i], nil
	}
	return nil, nil
}

// isToken reports whether a text can be the name of a header.
func isToken(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(r rune) bool {
		return r <= ' ' || r >= 0x7f || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, r)
	})
}

func isControl(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }
