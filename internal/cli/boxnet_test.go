package cli

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// An allowed name must not lead to this machine or its private network, because
// the owner of the name chooses where it points. The user allows private
// addresses by address.
func TestAllowedNameDoesNotReachPrivateAddress(t *testing.T) {
	served := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { served++ }))
	defer server.Close()
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	port := u.Port()
	for _, tt := range []struct {
		name  string
		hosts []string
		host  string // of the request
		want  bool
	}{
		{"name", []string{"localhost"}, "localhost:" + port, false},
		{"name and port", []string{"localhost:" + port}, "localhost:" + port, false},
		{"address", []string{"127.0.0.1"}, "127.0.0.1:" + port, true},
		{"address and port", []string{"127.0.0.1:" + port}, "127.0.0.1:" + port, true},
		{"address with another port", []string{"127.0.0.1:1"}, "127.0.0.1:" + port, false},
		{"name whose address is allowed too", []string{"localhost", "127.0.0.1"}, "localhost:" + port, true},
		{"name whose address is allowed with another port", []string{"localhost", "127.0.0.1:1"}, "localhost:" + port, false},
		{"mapped address", []string{"127.0.0.1"}, "[::ffff:127.0.0.1]:" + port, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := &netServices{config: python.SandboxConfig{Hosts: tt.hosts}}
			data, err := json.Marshal(map[string]string{"url": "http://" + tt.host + "/", "method": "GET"})
			if err != nil {
				t.Fatal(err)
			}
			before := served
			_, err = n.request(context.Background(), data)
			if tt.want && err != nil {
				t.Errorf("refused: %v", err)
			}
			if !tt.want && (!errors.Is(err, errHost) || netErrorCode(err) != "EACCES") {
				t.Errorf("error %v, want %v", err, errHost)
			}
			if got := served > before; got != tt.want {
				t.Errorf("reached the server: %v, want %v", got, tt.want)
			}
		})
	}
}

// The host that is checked must be the host that is used.
func TestNetworkAsksAreReadExactly(t *testing.T) {
	n := &netServices{config: python.SandboxConfig{Hosts: []string{"127.0.0.1"}}}
	for _, data := range []string{
		`{"URL":"http://127.0.0.1:1/","url":"http://192.0.2.1/"}`, `{"url":"http://127.0.0.1:1/","uri":"x"}`, `{"url":"http://127.0.0.1:1/","url":"http://127.0.0.1:1/"}`,
	} {
		if _, err := n.request(context.Background(), json.RawMessage(data)); err == nil || netErrorCode(err) != "EINVAL" {
			t.Errorf("%s: %v, want EINVAL", data, err)
		}
	}
	if _, err := n.lookup(context.Background(), json.RawMessage(`{"Hostname":"127.0.0.1"}`)); err == nil || netErrorCode(err) != "EINVAL" {
		t.Errorf("lookup with a key in another case: %v, want EINVAL", err)
	}
}

func TestPrivateAddresses(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1": true, "127.9.9.9": true, "0.0.0.0": true, "10.1.2.3": true, "172.16.0.1": true, "172.32.0.1": false, "192.168.1.1": true,
		"100.64.0.1": true, "100.128.0.1": false, "169.254.169.254": true, "100.100.100.200": true, "168.63.129.16": true, "192.0.0.192": true,
		"198.18.0.1": true, "224.0.0.1": true, "255.255.255.255": true, "240.0.0.1": true,
		"::": true, "::1": true, "fe80::1": true, "fec0::1": true, "fc00::1": true, "fd00:ec2::254": true, "ff02::1": true,
		"::ffff:127.0.0.1": true, "::ffff:10.0.0.1": true, "::ffff:8.8.8.8": false, "::127.0.0.1": true,
		"64:ff9b::7f00:1": true, "64:ff9b::808:808": false, "64:ff9b:1::1": true, "2002:7f00:1::": true, "2002:808:808::": false, "2001::1": true,
		"8.8.8.8": false, "1.1.1.1": false, "2606:4700:4700::1111": false,
	} {
		if got := private(netip.MustParseAddr(address)); got != want {
			t.Errorf("%s is private: %v, want %v", address, got, want)
		}
	}
}

// A response has at most maxResponseBody bytes.
func TestResponsesForASandboxAreBounded(t *testing.T) {
	n := &netServices{config: python.SandboxConfig{Hosts: []string{"127.0.0.1"}}}
	for size, want := range map[int]string{maxResponseBody: "", maxResponseBody + 1: "the response has more than 8388608 bytes"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(make([]byte, size)) }))
		defer server.Close()
		resp, err := n.request(t.Context(), json.RawMessage(`{"url":"`+server.URL+`","method":"GET"}`))
		if want == "" && (err != nil || len(resp.Body) != size) || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("a response of %d bytes: %v, want %q", size, err, want)
		}
	}
}

// A request that takes longer than the timeout ends with ETIMEDOUT.
func TestRequestsForASandboxHaveADeadline(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }))
	defer server.Close()
	n := &netServices{config: python.SandboxConfig{Hosts: []string{"127.0.0.1"}}}
	ask := &spool.Ask{Kind: python.AskHTTP, Data: json.RawMessage(`{"url":"` + server.URL + `","method":"GET"}`)}
	if _, err := n.answer(t.Context(), ask, time.Millisecond); err == nil || netErrorCode(err) != "ETIMEDOUT" {
		t.Errorf("%v, want ETIMEDOUT", err)
	}
}
