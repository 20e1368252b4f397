package listen_test

import (
	"net/http"
	"testing"

	"github.com/spool-run/spool/internal/listen"
)

// TestHostNames checks that a request to a loopback server for another host is
// refused: a page in a browser can have its own name resolve to loopback.
func TestHostNames(t *testing.T) {
	a, err := listen.ParseAddress("ws://127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l, err := listen.Open(a, listen.Options{})
	if err != nil {
		t.Fatal(err)
	}
	auth := l.Authenticator(nil)
	s := &http.Server{ConnContext: l.ConnContext, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := auth.Authenticate(r); err != nil {
			w.WriteHeader(http.StatusForbidden)
		}
	})}
	defer s.Close()
	go s.Serve(l)
	for host, want := range map[string]int{
		"": http.StatusOK, "localhost": http.StatusOK, "LOCALHOST:80": http.StatusOK, "127.0.0.1:9000": http.StatusOK, "[::1]:9000": http.StatusOK, "[::1]": http.StatusOK,
		"evil.example": http.StatusForbidden, "evil.example:9000": http.StatusForbidden, "localhost.evil.example": http.StatusForbidden, "127.0.0.1.evil.example:80": http.StatusForbidden,
	} {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http"+l.URL()[len("ws"):], nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Host = host
		resp, err := http.DefaultClient.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("host %q: %s", host, resp.Status)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
