package codextest

import (
	"testing"

	"github.com/spool-run/spool/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// startServer starts the reference server for one test.
func startServer(t *testing.T, args ...string) *Server {
	t.Helper()
	server, err := StartServer(Binary(t), args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// TestReference runs every scenario against the real server, which validates
// the scenarios.
func TestReference(t *testing.T) {
	server := startServer(t)
	for _, s := range Scenarios {
		t.Run(s.Name, func(t *testing.T) { s.Run(t, server.URL()) })
	}
}
