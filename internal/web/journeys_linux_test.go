package web

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/spool-run/spool/internal/servertest"
	"github.com/spool-run/spool/internal/skiptest"
)

var soak = flag.Duration("soak", 0, "how long a page stays open in TestJourneys, at 1 MB/s; only that and the journey without a pointer are done")

func TestMain(m *testing.M) { os.Exit(servertest.Main(m)) }

// TestJourneys does with the console what people do, in a real browser and with a real
// server: each screen, with its states, and what must never happen.
func TestJourneys(t *testing.T) {
	var chromium string
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			chromium = path
			break
		}
	}
	if chromium == "" {
		skiptest.Missing(t, "there is no Chromium")
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "e2e"), os.DirFS("e2e")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules(t), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "e2e/journeys.mjs")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SPOOL_PROGRAM="+servertest.Binary(t), "SPOOL_STATE="+servertest.StateDir(t), "CHROMIUM="+chromium)
	if *soak > 0 {
		cmd.Env = append(cmd.Env, "ONLY=stays open|keyboard only", fmt.Sprintf("SOAK=%d", int(soak.Seconds())))
	}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}
