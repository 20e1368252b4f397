package egress

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

// TestJudge checks that a judge decides about every request, and words the refusal.
func TestJudge(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("web")) }))
	defer web.Close()
	var asked []string
	s := open(t, Options{NoSOCKS: true, Judge: func(_ context.Context, q Query) ([]netip.Addr, error) {
		asked = append(asked, q.Protocol+" "+q.Method+" "+q.Host)
		if q.Host == "no.example" {
			return nil, &Block{Header: http.Header{"X-Why": {"because"}}, Body: "blocked"}
		}
		return []netip.Addr{netip.MustParseAddr("127.0.0.1")}, nil
	}})
	c := s.client(t, nil)
	_, port, _ := cutPort(strings.TrimPrefix(web.URL, "http://"))
	for range 2 {
		if status, body := get(t, c, "http://yes.example:"+port); status != http.StatusOK || body != "web" {
			t.Errorf("an allowed host: %d %s", status, body)
		}
		if status, body := get(t, c, "http://no.example"); status != http.StatusForbidden || body != "blocked" {
			t.Errorf("a blocked host: %d %s", status, body)
		}
	}
	if _, err := c.Get("https://no.example"); err == nil || !strings.Contains(err.Error(), "Forbidden") {
		t.Errorf("a blocked tunnel: %v", err)
	}
	if want := "http GET yes.example|http GET no.example|http GET yes.example|http GET no.example|connect CONNECT no.example"; strings.Join(asked, "|") != want {
		t.Errorf("asked %q, want %q", asked, want)
	}
	if d := s.reported(); len(d) > 0 {
		t.Errorf("reported %v", d)
	}
}

// TestForward checks that connections are carried to another proxy, which decides.
func TestForward(t *testing.T) {
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("web")) }))
	defer web.Close()
	rules, err := ParseRules([]string{"127.0.0.1"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	inner := open(t, Options{Rules: rules})
	s := open(t, Options{Forward: inner.addr})
	c := s.client(t, nil)
	if status, body := get(t, c, web.URL); status != http.StatusOK || body != "web" {
		t.Errorf("an allowed host: %d %s", status, body)
	}
	if status, _ := get(t, c, "http://no.example"); status != http.StatusForbidden {
		t.Errorf("another host: %d", status)
	}
	flows := s.Close()
	if len(flows) != 1 || flows[0].Host != "127.0.0.1" || flows[0].DownBytes == 0 {
		t.Errorf("flows %+v", flows)
	}
}
