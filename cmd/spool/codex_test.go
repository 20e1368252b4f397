package main_test

import (
	"os"
	"testing"

	"github.com/spool-run/spool/internal/codextest"
	"github.com/spool-run/spool/internal/servertest"
)

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

// TestCodex has the real codex CLI use this spool as its remote environment.
func TestCodex(t *testing.T) {
	for _, s := range codextest.Scenarios {
		t.Run(s.Name, func(t *testing.T) {
			s.Run(t, servertest.Start(t, t.TempDir()).URL)
		})
	}
}
