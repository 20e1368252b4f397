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
	browser := chromium(t)
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "e2e"), os.DirFS("e2e")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules(t), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	ports, err := servertest.FreePorts(4) // of a control node, which has three, and of another one
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "e2e/journeys.mjs")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SPOOL_PROGRAM="+servertest.Binary(t), "SPOOL_STATE="+servertest.StateDir(t), "CHROMIUM="+browser,
		"SPOOL_NODES="+servertest.StateDir(t)+":"+servertest.StateDir(t), fmt.Sprint("SPOOL_PORTS=", ports))
	if *soak > 0 {
		cmd.Env = append(cmd.Env, "ONLY=stays open|keyboard only", fmt.Sprintf("SOAK=%d", int(soak.Seconds())))
	}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Fatal(err)
	}
}

// chromium returns the path of a browser.
func chromium(t *testing.T) string {
	t.Helper()
	for _, name := range []string{"chromium-headless-shell", "chromium", "chromium-browser", "google-chrome"} {
		if path, err := exec.LookPath(name); err == nil {
			return path
		}
	}
	skiptest.Missing(t, "there is no Chromium")
	return ""
}

// TestSDKInBrowser has a page of another origin use the TypeScript client, as a bundler
// makes it, over connections that are cut.
func TestSDKInBrowser(t *testing.T) {
	browser := chromium(t)
	source, err := filepath.Abs("../../sdk/typescript/src/index.ts")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("e2e")); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(modules(t), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), "node", "sdk.mjs")
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "SPOOL_PROGRAM="+servertest.Binary(t), "SPOOL_STATE="+servertest.StateDir(t), "CHROMIUM="+browser, "SDK="+source)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}
