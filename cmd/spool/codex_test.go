package main_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/codextest"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/modeltest"
	"github.com/spool-run/spool/internal/servertest"
)

// TestMain is also the main function of the processes of sandboxes.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == isolate.Role {
		os.Exit(isolate.Work(os.Args[2:]))
	}
	os.Exit(servertest.Main(m))
}

// TestCodex has the real codex CLI use this spool as its remote environment.
func TestCodex(t *testing.T) {
	for _, s := range codextest.Scenarios {
		t.Run(s.Name, func(t *testing.T) {
			t.Parallel()
			s.Run(t, servertest.Start(t, t.TempDir()).URL)
		})
	}
}

// TestCodexConnects has the real codex CLI connect in every way that it knows:
// without a token, as in the README, with one, and with TLS.
func TestCodexConnects(t *testing.T) {
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("sesame\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	state := t.TempDir()
	for _, c := range []struct {
		name   string
		server []string
		codex  codextest.Config
	}{
		{"loopback", []string{"--listen", "ws://127.0.0.1:0"}, codextest.Config{Variable: true}},
		{"token", []string{"--ws-auth", "capability-token", "--ws-token-file", token}, codextest.Config{Token: "sesame"}},
		{
			"TLS", []string{"--listen", "wss://127.0.0.1:0", "--tls-self-signed"},
			codextest.Config{Variable: true, Env: []string{"SSL_CERT_FILE=" + filepath.Join(state, "server-cert.pem")}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			model, err := modeltest.New(modeltest.InOrder(codextest.Run(codextest.Command{Cmd: "echo from spool"}), modeltest.Say("done")))
			if err != nil {
				t.Fatal(err)
			}
			defer model.Close()
			c.codex.Binary, c.codex.Model, c.codex.Dir = codextest.Binary(t), model.URL(), t.TempDir()
			c.codex.Server = servertest.Start(t, state, c.server...).URL
			result, err := codextest.Exec(t.Context(), c.codex)
			if err != nil {
				t.Fatal(err)
			}
			outs := codextest.Outputs(model)
			if result.ExitCode != 0 || len(outs) != 1 || !strings.Contains(outs[0].Text, "from spool") {
				t.Errorf("exit code %d, outputs %+v\n%s", result.ExitCode, outs, result.Stderr)
			}
		})
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	const lines = "$ spool exec-server --listen ws://127.0.0.1:9000 &\n$ CODEX_EXEC_SERVER_URL=ws://127.0.0.1:9000 codex exec "
	if !strings.Contains(string(readme), lines) {
		t.Errorf("the README no longer says how codex connects: %q", lines)
	}
}
