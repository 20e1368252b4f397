package cli

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/wire/httpapi"
)

func TestHeadersAreBounded(t *testing.T) {
	s := httptest.NewUnstartedServer(nil)
	s.Config = newHTTPServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}), nil)
	s.Start()
	defer s.Close()
	for size, want := range map[int]int{httpapi.DefaultHeaders / 2: http.StatusOK, httpapi.DefaultHeaders + 8<<10: http.StatusRequestHeaderFieldsTooLarge} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", s.URL, nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("X-Long", strings.Repeat("x", size))
		resp, err := s.Client().Do(r)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("headers of %d bytes: %s", size, resp.Status)
		}
	}
}
