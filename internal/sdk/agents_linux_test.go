package sdk

import (
	"bytes"
	"errors"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spool-run/spool/internal/agenttest"
	"github.com/spool-run/spool/internal/modeltest"
	"github.com/spool-run/spool/internal/netcut"
	"github.com/spool-run/spool/internal/servertest"
)

// cutting is a script that cuts all connections of clients when the agent asks its model:
// what waits for the agent is cut in the middle.
type cutting struct {
	modeltest.Script
	proxy *netcut.Proxy
	// How often the prompt of the tool was answered, and connections were cut then.
	spoken, cuts atomic.Int32
}

// Step implements [modeltest.Script].
func (c *cutting) Step(r *modeltest.Request) (modeltest.Step, error) {
	cuts := c.proxy.Cut()
	switch prompt := r.Prompt(); {
	case strings.Contains(prompt, "Say something."):
		c.spoken.Add(1)
		c.cuts.Add(int32(cuts)) // one at least: the call waits
		return modeltest.Say("Something."), nil
	case strings.Contains(prompt, "Why does the test fail?"): // in the documentation
		return modeltest.Say("It divides by zero."), nil
	}
	return c.Script.Step(r)
}

// snippet returns the snippet of a page of the documentation that uses an agent, in a
// directory.
func snippet(t *testing.T, page, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("../../docs", page))
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\n## Coding agents\n")
	found := fence.FindStringSubmatch(after)
	if found == nil || !strings.Contains(found[1], `"/src"`) {
		t.Fatalf("%s has no snippet with an agent in /src", page)
	}
	return strings.ReplaceAll(found[1], `"/src"`, strconv.Quote(dir))
}

// pixel is a PNG of one pixel, in base64.
const pixel = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGNgAAAAAgABSK+kcQAAAABJRU5ErkJggg=="

// fence matches the first snippet of a text.
var fence = regexp.MustCompile("(?s)^\\s*```(?:py|ts)\n(.*?)```")

// TestAgents has both SDKs approve what the real codex wants to do, type again what is
// dangerous, and ask one through the tools for models, while connections are cut: each
// prompt is given once. The snippets of the documentation follow.
func TestAgents(t *testing.T) {
	t.Parallel()
	for language, programs := range map[string]func(*testing.T, string) sample{"python": pythonPrograms, "typescript": javascriptPrograms} {
		t.Run(language, func(t *testing.T) {
			s, dir, home, state := programs(t, "testdata/agents"), t.TempDir(), t.TempDir(), servertest.StateDir(t)
			script := &cutting{Script: modeltest.ByTurn(
				modeltest.Shell("echo made >made.txt"), modeltest.Shell("rm precious.txt"), modeltest.Shell("rm scrap.txt"), modeltest.Say("That is all."))}
			model, err := modeltest.New(script)
			if err != nil {
				t.Fatal(err)
			}
			defer model.Close()
			// Where an agent of a server, which has few variables, looks for it.
			config := filepath.Join(home, ".codex")
			if err := os.Mkdir(config, 0o755); err != nil {
				t.Fatal(err)
			}
			agent, err := agenttest.WriteHome(config, agenttest.Codex, model)
			if err != nil {
				t.Fatal(err)
			}
			env := []string{"HOME=" + home, "PATH=" + agent["PATH"]}
			server, err := servertest.StartCommand(t.Context(), "/usr/bin/env", append(env, servertest.Binary(t), "serve", "--state", state, "--listen", "127.0.0.1:0", "--host", "127.0.0.1")...)
			if err != nil {
				t.Fatal(err)
			}
			defer server.Kill()
			target, err := url.Parse(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			if script.proxy, err = netcut.NewProxy(target.Host); err != nil {
				t.Fatal(err)
			}
			defer script.proxy.Close()
			token, err := os.ReadFile(filepath.Join(state, "server-token"))
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"precious.txt", "scrap.txt"} {
				if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out := run(t, dir, append(append(s.env, env...), "PIXEL="+pixel), append(s.program("agents"), "http://"+script.proxy.Addr(), strings.TrimSpace(string(token)), dir, snippet(t, language+".md", dir))...)
			if want := `["That is all.",3,"Something.",false]` + "\nIt divides by zero.\n"; strings.ReplaceAll(out, ", ", ",") != want {
				t.Errorf("it printed %s, want %s", out, want)
			}
			if !slices.ContainsFunc(model.Requests(), func(r *modeltest.Request) bool { return bytes.Contains(r.Body, []byte(pixel)) }) {
				t.Error("the model was not shown the image")
			}
			if script.spoken.Load() != 1 || script.cuts.Load() == 0 {
				t.Errorf("with %d cuts the prompt was given %d times", script.cuts.Load(), script.spoken.Load())
			}
			for name, want := range map[string]string{"made.txt": "made\n", "precious.txt": ""} {
				if b, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(b) != want {
					t.Errorf("%s: %q, %v", name, b, err)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "scrap.txt")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("what was typed again was not done: %v", err)
			}
		})
	}
}
