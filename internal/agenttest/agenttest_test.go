package agenttest

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/internal/modeltest"
	"github.com/spool-run/spool/internal/polltest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

func TestInstallUnknown(t *testing.T) {
	if _, err := Install("nobody"); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("got error %v", err)
	}
}

// byHand holds the command line of each agent for one prompt.
var byHand = map[string][]string{
	Codex:    {"exec", "--json", "--skip-git-repo-check", "--sandbox=danger-full-access", "Go."},
	Claude:   {"-p", "--output-format", "stream-json", "--verbose", "--allowedTools", "Bash", "--", "Go."},
	OpenCode: {"run", "--format", "json", "--", "Go."},
	Pi:       {"--print", "--mode", "json", "--", "Go."},
}

// TestByHand runs every agent directly, which validates the homes and the
// model.
func TestByHand(t *testing.T) {
	for _, agent := range All {
		t.Run(agent, func(t *testing.T) {
			m, err := modeltest.New(modeltest.ByTurn(
				modeltest.Shell("echo made >made.txt"),
				modeltest.Say("All done."),
			))
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			dir := t.TempDir()
			cmd := exec.CommandContext(t.Context(), Path(t, agent), byHand[agent]...)
			cmd.Dir = dir
			for name, value := range Home(t, agent, m) {
				cmd.Env = append(cmd.Env, name+"="+value)
			}
			cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			// What it left running may write to its home, which is removed next.
			polltest.Until(t, "the end of its processes", func() bool {
				return cmd.Process == nil || errors.Is(syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL), syscall.ESRCH)
			})
			if err != nil || m.Err() != nil {
				t.Fatalf("%v, model: %v\n%s\n%s", err, m.Err(), out, &stderr)
			}
			if !strings.Contains(string(out), "All done.") {
				t.Errorf("no answer:\n%s\n%s", out, &stderr)
			}
			if got, err := os.ReadFile(filepath.Join(dir, "made.txt")); err != nil || string(got) != "made\n" {
				t.Errorf("the command did not run: %q, %v\n%s", got, err, out)
			}
		})
	}
}
