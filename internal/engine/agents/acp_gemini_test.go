//go:build linux

package agents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/internal/fifotest"
	"github.com/spool-run/spool/internal/npmtest"
	"github.com/spool-run/spool/internal/polltest"
)

// geminiVersion is the pinned gemini CLI.
const geminiVersion = "0.61.0"

// geminiCLI is the real agent, from npm.
func geminiCLI(t *testing.T) string {
	t.Helper()
	p := npmtest.Program{Name: "gemini-" + geminiVersion, Packages: []string{"@google/gemini-cli@" + geminiVersion},
		File: filepath.Join("node_modules", "@google", "gemini-cli", "bundle", "gemini.js")}
	path, err := p.Cached()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// geminiPart is a part of what the model says.
type geminiPart struct {
	Text string      `json:"text,omitempty"`
	Call *geminiCall `json:"functionCall,omitempty"`
}

type geminiCall struct {
	Name string         `json:"name"`
	Args map[string]any `json:"args"`
}

// geminiModel is a model on loopback: the nth thing it says is the nth of the
// script, whatever it is asked.
type geminiModel struct {
	script [][]geminiPart

	mu       sync.Mutex
	requests int
}

func (m *geminiModel) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Contents []struct {
			Role string `json:"role"`
		} `json:"contents"`
		Tools []json.RawMessage `json:"tools"`
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if strings.HasSuffix(r.URL.Path, ":countTokens") {
		fmt.Fprint(w, `{"totalTokens":10}`)
		return
	}
	m.mu.Lock()
	m.requests++
	m.mu.Unlock()
	turn := 0
	for _, c := range body.Contents {
		if c.Role == "model" {
			turn++
		}
	}
	parts := []geminiPart{{Text: "{}"}} // something besides, such as a title
	if len(body.Tools) > 0 {
		parts = m.script[min(turn, len(m.script)-1)]
	}
	reply, err := json.Marshal(map[string]any{
		"candidates":    []any{map[string]any{"content": map[string]any{"role": "model", "parts": parts}, "finishReason": "STOP", "index": 0}},
		"usageMetadata": map[string]int{"promptTokenCount": 100, "candidatesTokenCount": 10, "totalTokenCount": 110},
	})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	if strings.HasSuffix(r.URL.Path, ":streamGenerateContent") {
		w.Header().Set("Content-Type", "text/event-stream")
		fmt.Fprintf(w, "data: %s\r\n\r\n", reply)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(reply) // a client that is gone wants nothing
}

// startGemini starts a run of the real agent with a scripted model.
func startGemini(t *testing.T, model *geminiModel, home string, c agent.Config) (*chat, string) {
	t.Helper()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Fatalf("gemini needs Node: %v", err)
	}
	server := httptest.NewServer(model)
	t.Cleanup(server.Close)
	work := filepath.Join(home, "work")
	if err := os.MkdirAll(work, 0o755); err != nil {
		t.Fatal(err)
	}
	c.Agent, c.Command = agent.ACP, []string{geminiCLI(t), "--acp", "--skip-trust", "--model", "gemini-2.5-flash"}
	config, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	log := enginetest.NewLog()
	s, err := newEngine(t).Start(context.Background(), spool.Spec{Engine: agent.Engine, Config: config, Cwd: work, Env: map[string]string{
		"PATH": filepath.Dir(node) + ":/usr/local/bin:/usr/bin:/bin", "HOME": home, "LANG": "C.UTF-8", "TERM": "dumb",
		"GEMINI_API_KEY": "dummy-key", "GOOGLE_GEMINI_BASE_URL": server.URL,
		"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_TELEMETRY_ENABLED": "false", "GEMINI_CLI_NO_RELAUNCH": "true",
	}}, log)
	if err != nil {
		t.Fatal(err)
	}
	r := &chat{t, s, log}
	t.Cleanup(func() {
		if err := s.Control(context.Background(), spool.Control{Op: spool.ControlKill}); err != nil && !errors.Is(err, spool.ErrEnded) {
			t.Errorf("kill: %v", err)
		}
		s.Wait()
		if t.Failed() {
			t.Log(log.Dump(t))
		}
	})
	return r, work
}

// ageSessions makes the sessions of gemini old. It names them by the minute,
// and one that is loaded in the minute it began in loses its messages.
func ageSessions(t *testing.T, home string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(home, ".gemini", "tmp", "*", "chats", "session-*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no sessions were kept: %v", err)
	}
	for _, file := range files {
		name := filepath.Base(file)
		id := name[strings.LastIndexByte(name, '-'):]
		if err := os.Rename(file, filepath.Join(filepath.Dir(file), "session-2026-01-01T00-00"+id)); err != nil {
			t.Fatal(err)
		}
	}
}

// running returns the processes whose command line has a part in it.
func running(t *testing.T, part string) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var pids []string
	for _, file := range files {
		if b, err := os.ReadFile(file); err == nil && strings.Contains(string(b), part) { // others come and go
			pids = append(pids, filepath.Base(filepath.Dir(file)))
		}
	}
	return pids
}

// The real gemini CLI, through the client that knows nothing about it: a
// command, a permission granted and one denied, an interrupt, a second prompt,
// and its session loaded by another run.
func TestRealGemini(t *testing.T) {
	shell := func(command string) geminiPart {
		return geminiPart{Call: &geminiCall{Name: "run_shell_command", Args: map[string]any{"command": command, "description": "as scripted"}}}
	}
	write := func(file string) geminiPart {
		return geminiPart{Call: &geminiCall{Name: "write_file", Args: map[string]any{"file_path": file, "content": "hello\n"}}}
	}
	home := t.TempDir()
	began := fifotest.New(t, home, "began")
	sleep := fmt.Sprint(10_000_000 + os.Getpid()) // seconds; no other process of the machine sleeps so long
	model := &geminiModel{script: [][]geminiPart{
		{{Text: "Writing."}, write("yes.txt")}, {{Text: "Again."}, write("no.txt")}, {{Text: "One written."}},
		{{Text: "Sleeping."}, shell("echo > " + began.Path + "; sleep " + sleep)}, {{Text: "Slept."}},
	}}
	r, work := startGemini(t, model, home, agent.Config{})

	turn := r.say("Write two files.")
	yes, a := r.nextAsk(0)
	if a.Name != string(agent.ActionFileChange) {
		t.Errorf("first ask: %+v", a)
	}
	r.answer(yes.Seq, agent.Allow)
	second, _ := r.nextAsk(yes.Seq)
	r.answer(second.Seq, agent.Deny)
	d := r.done(turn)
	if d.Outcome != spool.TurnOK && d.Outcome != spool.TurnRefused {
		t.Fatalf("first turn: %+v", d)
	}
	if _, err := os.Stat(filepath.Join(work, "yes.txt")); err != nil {
		t.Errorf("what was allowed: %v", err)
	}
	if _, err := os.Stat(filepath.Join(work, "no.txt")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what was denied: %v", err)
	}
	session := d.Resume
	if session == "" {
		t.Fatal("no session")
	}

	turn = r.say("Sleep.")
	ask := r.log.Until(t, "the ask for the command", func(e spool.Event) bool { return e.Kind == spool.KindAsk && e.Turn == turn })
	var what agent.Approval
	if err := json.Unmarshal(enginetest.Data[spool.Ask](t, ask).Data, &what); err != nil || !strings.HasSuffix(what.Command, "; sleep "+sleep) {
		t.Errorf("the command is not told: %+v, %v", what, err)
	}
	r.answer(ask.Seq, agent.Allow)
	ctx, cancel := context.WithTimeout(t.Context(), enginetest.Patience)
	defer cancel()
	if err := began.Wait(ctx); err != nil {
		t.Fatalf("wait for the command: %v", err)
	}
	r.control(spool.Control{Op: spool.ControlInterrupt, Turn: turn})
	if d := r.done(turn); d.Outcome != spool.TurnInterrupted || d.StoppedWith != StoppedInBand {
		t.Errorf("interrupted: %+v", d)
	}
	// The agent says that it stopped, and the end of its command may follow.
	if !polltest.Holds(func() bool { return len(running(t, "sleep\x00"+sleep)) == 0 }) {
		t.Errorf("processes %v of the command are alive", running(t, "sleep\x00"+sleep))
	}
	r.eof()
	enginetest.Wait(t, r.s)
	wellFormed(t, r.log.All(t))

	ageSessions(t, home)
	again, _ := startGemini(t, &geminiModel{script: [][]geminiPart{{{Text: "I remember."}}}}, home, agent.Config{Resume: session})
	d = again.ask("Do you?")
	if d.Outcome != spool.TurnOK || d.Answer != "I remember." || d.Resume != session {
		t.Errorf("resumed: %+v", d)
	}
	history := 0
	for _, m := range events[agent.Message](t, again.log, agent.KindMessage) {
		if m.History {
			history++
		}
	}
	if history == 0 {
		t.Error("nothing of the session is marked as history")
	}
	wellFormed(t, again.log.All(t))
}
