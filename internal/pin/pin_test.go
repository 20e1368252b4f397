package pin

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	certificate := []byte("a certificate")
	good := Of(certificate)
	digits := strings.TrimPrefix(good, prefix)
	for _, tt := range []struct {
		name, pin string
		chain     [][]byte
		valid, ok bool
	}{
		{"the same", good, [][]byte{certificate}, true, true},
		{"the same, of a chain", good, [][]byte{certificate, []byte("its authority")}, true, true},
		{"upper case", prefix + strings.ToUpper(digits), [][]byte{certificate}, true, true},
		{"colons", prefix + digits[:2] + ":" + digits[2:], [][]byte{certificate}, true, true},
		{"another", good, [][]byte{[]byte("another certificate")}, true, false},
		{"of the authority", good, [][]byte{[]byte("another certificate"), certificate}, true, false},
		{"no certificate", good, nil, true, false},
		{"no text", "", nil, false, false},
		{"no prefix", digits, nil, false, false},
		{"short", good[:len(good)-2], nil, false, false},
		{"long", good + "00", nil, false, false},
		{"no digits", prefix + strings.Repeat("x", 64), nil, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			check, err := Check(tt.pin)
			if (err == nil) != tt.valid {
				t.Fatal(err)
			}
			if err != nil {
				return
			}
			var s tls.ConnectionState
			for _, raw := range tt.chain {
				s.PeerCertificates = append(s.PeerCertificates, &x509.Certificate{Raw: raw})
			}
			err = check(s)
			if (err == nil) != tt.ok || err != nil && tt.chain != nil && !errors.Is(err, ErrOther) {
				t.Error(err)
			}
		})
	}
}
