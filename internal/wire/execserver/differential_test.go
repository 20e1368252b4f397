package execserver_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/coder/websocket"
	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/spool-run/spool/internal/codextest"
	"github.com/spool-run/spool/internal/wire/execserver"
	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
)

// TestSameAsCodex sends the requests of testdata/differential/requests.txt to
// our server and to the real codex exec-server, which see the same files and the
// same environment, and compares the answers.
func TestSameAsCodex(t *testing.T) {
	if testing.Short() {
		t.Skip("needs codex")
	}
	m := newMachine(t)
	web := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header()["Date"] = nil
		fmt.Fprintf(w, "%v %v", r.Header["V"], r.Header["W"])
	}))
	t.Cleanup(web.Close)
	ours, codex := m.connect(t)

	info := func(p *peer) map[string]any {
		answer, _ := p.ask(t, "environment/info", "null").(map[string]any)
		return map[string]any{"temporaryDirectories": answer["temporaryDirectories"], "tempDir": answer["tempDir"], "userHomeDir": answer["userHomeDir"], "shell": answer["shell"]}
	}
	if diff := cmp.Diff(info(codex), info(ours)); diff != "" {
		t.Errorf("environment/info (-codex +spool):\n%s", diff)
	}

	file, err := os.Open("testdata/differential/requests.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "#") {
			continue
		}
		method, params, _ := strings.Cut(line, " ")
		params = strings.NewReplacer("$D", fileuri.Format(m.dir), "$U", web.URL).Replace(params)
		want, got := normal(codex.ask(t, method, params)), normal(ours.ask(t, method, params))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-codex +spool):\n%s", line, diff)
		}
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
}

// TestOpenFileSurvivesReplacement compares reads and writes of a file whose path
// is given to another file.
func TestOpenFileSurvivesReplacement(t *testing.T) {
	if testing.Short() {
		t.Skip("needs codex")
	}
	m := newMachine(t)
	ours, codex := m.connect(t)
	talk := func(p *peer, name string) (answers []any) {
		path := filepath.Join(m.dir, name)
		replace := func() {
			writeTree(t, m.dir, map[string]string{name + ".new": "new"})
			if err := os.Rename(path+".new", path); err != nil {
				t.Fatal(err)
			}
		}
		ask := func(method, params string) {
			answers = append(answers, p.ask(t, method, strings.ReplaceAll(params, "$F", fileuri.Format(path))))
		}
		writeTree(t, m.dir, map[string]string{name: "0123456789"})
		ask("fs/open", `{"handleId":"r","path":"$F"}`)
		ask("fs/readBlock", `{"handleId":"r","offset":0,"len":4}`)
		replace()
		ask("fs/readBlock", `{"handleId":"r","offset":4,"len":4}`)
		ask("fs/readBlock", `{"handleId":"r","offset":8,"len":4}`)
		ask("fs/open", `{"handleId":"w","path":"$F","mode":"replace"}`)
		replace()
		ask("fs/writeBlock", `{"handleId":"w","offset":0,"chunk":"aGVsbG8="}`)
		ask("fs/readFile", `{"path":"$F"}`)
		return answers
	}
	want, got := talk(codex, "a"), talk(ours, "b")
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-codex +spool:\n%s", diff)
	}
	if chunk := fmt.Sprint(got[2]); !strings.Contains(chunk, "NDU2Nw==") {
		t.Errorf("the second block is %s, want 4567", chunk)
	}
}

// machine is a directory with the files of a machine, and its environment.
type machine struct {
	codex string // the binary
	dir   string
	env   map[string]string
}

// newMachine writes the files of testdata/differential and some that a text file
// cannot hold, and sets the environment of the test.
func newMachine(t *testing.T) *machine {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	archive, err := txtar.ParseFile("testdata/differential/machine.txtar")
	if err != nil {
		t.Fatal(err)
	}
	tree := make(map[string]string)
	for _, f := range archive.Files {
		tree[f.Name] = strings.ReplaceAll(string(f.Data), "$P", dir)
	}
	tree["walk/bad\xff"] = ""
	tree["walk/dir\xff/in"] = ""
	tree["large/max/SKILL.md"] = strings.Repeat("x", 1<<20)
	tree["large/over/SKILL.md"] = strings.Repeat("x", 1<<20+1)
	tree["large/binary/SKILL.md"] = "text\xff\xfe"
	tree["large/dir/SKILL.md/x"] = ""
	tree["codex/skills/crlf/SKILL.md"] = "---\r\nname: crlf\r\ndescription: lines\r\n---\r\n"
	tree["codex/skills/bom/SKILL.md"] = "\ufeff---\nname: bom\ndescription: bom\n---\n"
	writeTree(t, dir, tree)
	for name, target := range map[string]string{
		"link": "trusted", "walk/link": "ok", "plugin/linked": "skills", "plugin/1/SKILL.md": "../SKILL.md", "walk/gone": "nowhere",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	// Find codex in the cache of the real home directory.
	m := &machine{codex: codextest.Binary(t), dir: dir, env: map[string]string{
		"HOME": filepath.Join(dir, "home"), "CODEX_HOME": filepath.Join(dir, "codex"), "TMPDIR": filepath.Join(dir, "tmp"), "SHELL": "/bin/bash",
		"NODE_REPL_AUTH_TOKEN": "repl", "CODEX_ANYTHING": "any", "EMPTY_VALUE": "", "OPENAI_API_KEY": "secret",
	}}
	for name, value := range m.env {
		t.Setenv(name, value)
	}
	return m
}

func writeTree(t *testing.T, dir string, tree map[string]string) {
	t.Helper()
	for name, text := range tree {
		path := filepath.Join(dir, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err = errors.Join(err, os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
}

// connect starts both servers and performs the handshakes.
func (m *machine) connect(t *testing.T) (ours, codex *peer) {
	t.Helper()
	var env []string
	for name, value := range m.env {
		env = append(env, name+"="+value)
	}
	s, err := codextest.StartServerWith(m.codex, env)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	url, _ := newServer(t, execserver.Options{})
	ours, codex = dialPeer(t, url), dialPeer(t, s.URL())
	ours.initialize(t, nil)
	codex.initialize(t, nil)
	return ours, codex
}

// ask sends a request and returns its result or its error.
func (p *peer) ask(t *testing.T, method, params string) any {
	t.Helper()
	p.send(t, websocket.MessageText, fmt.Appendf(nil, `{"id":1,"method":%q,"params":%s}`, method, params))
	var m struct{ Result, Error any }
	if err := json.Unmarshal(p.answer(t), &m); err != nil {
		t.Fatal(err)
	}
	if m.Error != nil {
		return m.Error
	}
	return m.Result
}

// normal removes what may differ: the form of TOML and the words of a parser.
func normal(answer any) any {
	m, _ := answer.(map[string]any)
	const loadFailed = "failed to load executor-local config: "
	if text, ok := m["message"].(string); ok && strings.HasPrefix(text, loadFailed) {
		m["message"] = loadFailed
	}
	for _, stack := range []string{"config", "requirements"} {
		stack, _ := m[stack].(map[string]any)
		layers, _ := stack["layers"].([]any)
		for _, layer := range layers {
			layer := layer.(map[string]any)
			var values map[string]any
			if _, err := toml.Decode(layer["toml"].(string), &values); err != nil {
				layer["toml"] = err.Error()
			} else {
				layer["toml"] = values
			}
		}
	}
	return answer
}
