package execserver_test

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool/internal/wire/execserver"
	"github.com/spool-run/spool/internal/wire/execserver/fileuri"
)

var recordCodex = flag.Bool("record-codex", false, "record the answers of the real codex in testdata/differential")

const sandboxAnswers = "testdata/differential/sandbox.answers"

// TestSandboxAsRecorded sends the requests of testdata/differential/sandbox.txt to
// our server, and compares the answers and the files at the end with those of the
// real codex, which were recorded because it takes a minute to answer.
func TestSandboxAsRecorded(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	m := &machine{dir: dir}
	t.Setenv("TMPDIR", filepath.Join(dir, "tmp"))
	url, _ := newServer(t, execserver.Options{})
	ours := dialPeer(t, url)
	ours.initialize(t, nil)
	want, got := readAnswers(t), m.askInSandboxes(t, ours, "ours", readSandboxRequests(t))
	for i := range max(len(want), len(got)) {
		if i >= len(want) || i >= len(got) || want[i] != got[i] {
			t.Errorf("answer %d (-codex +spool):\n%s", i, cmp.Diff(want[min(i, len(want)):min(i+1, len(want))], got[min(i, len(got)):min(i+1, len(got))]))
		}
	}
}

// TestSameAsCodexInSandbox compares some of the recorded answers with those of the
// real codex. With -record-codex it records all.
func TestSameAsCodexInSandbox(t *testing.T) {
	if testing.Short() {
		t.Skip("needs codex")
	}
	m := newMachine(t)
	_, codex := m.connect(t)
	requests := readSandboxRequests(t)
	if *recordCodex {
		answers := m.askInSandboxes(t, codex, "real", requests)
		if err := os.WriteFile(sandboxAnswers, []byte(strings.Join(answers, "\n")+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	const sample = 8 // of about 200
	want := readAnswers(t)[:sample]
	got := m.askInSandboxes(t, codex, "real", requests[:sample])[:sample]
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("codex does not answer as recorded (-recorded +codex):\n%s", diff)
	}
}

// sandboxRequest is a request with a sandbox object.
type sandboxRequest struct {
	line, method, params, sandbox string
}

func readSandboxRequests(t *testing.T) (all []sandboxRequest) {
	t.Helper()
	sandboxes := map[string]string{"-": "null"}
	for _, line := range readLines(t, "testdata/differential/sandbox.txt") {
		name, rest, _ := strings.Cut(line, " ")
		switch {
		case strings.HasPrefix(line, "#"):
			continue
		case name == "sandbox":
			name, entries, _ := strings.Cut(rest, " ")
			sandboxes[name] = fmt.Sprintf(`{"permissions":{"type":"managed","file_system":{"type":"restricted","entries":[%s]},"network":"restricted"},`+
				`"cwd":"$D/ws","workspaceRoots":["$D/ws"],"windowsSandboxLevel":"disabled"}`, entries)
			continue
		}
		sandbox, ok := sandboxes[name]
		if !ok {
			t.Fatalf("no sandbox for %s", line)
		}
		method, params, _ := strings.Cut(rest, " ")
		all = append(all, sandboxRequest{line, method, params, sandbox})
	}
	return all
}

func readAnswers(t *testing.T) []string { return readLines(t, sandboxAnswers) }

func readLines(t *testing.T, file string) []string {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSuffix(string(b), "\n"), "\n")
}

// askInSandboxes sends the requests to a server, with files of its own, and
// returns the answers and the files at the end, one per line.
func (m *machine) askInSandboxes(t *testing.T, p *peer, name string, requests []sandboxRequest) (answers []string) {
	t.Helper()
	dir := filepath.Join(m.dir, name)
	writeTree(t, m.dir, map[string]string{"tmp/keep": ""})
	newSandboxTree(t, dir)
	add := func(what string, value any) {
		b, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		answers = append(answers, what+" => "+string(b))
	}
	for _, r := range requests {
		params := strings.Replace(r.params, "{", `{"sandbox":`+r.sandbox+`,`, 1)
		params = strings.NewReplacer("$D", fileuri.Format(dir), "$T", fileuri.Format(filepath.Join(m.dir, "tmp")), "$E", "file:///etc").Replace(params)
		add(r.line, relative(p.ask(t, r.method, params), dir))
	}
	files := describeTree(t, dir)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		add(name, files[name])
	}
	return answers
}

// newSandboxTree makes the files for requests in sandboxes.
func newSandboxTree(t *testing.T, dir string) {
	t.Helper()
	writeTree(t, dir, map[string]string{
		"ws/f": "hi", "ws/a.env": "e", "ws/sub/b.env": "e", "ws/sub/deep/x": "x", "ws/.git/config": "g",
		"outside/o": "o", "outside/h": "h",
		"worktree/.git": "gitdir: store\n", "worktree/store/HEAD": "h",
	})
	for name, target := range map[string]string{
		"ws/link": filepath.Join(dir, "outside"), "ws/filelink": "../outside/o", "ws/inner": "f", "ws/dangling": "gone",
		"ws/escaping": "../outside/gone", "ws/loop": "loop", "ws/gitlink": ".git", "wslink": "ws",
	} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link(filepath.Join(dir, "outside/h"), filepath.Join(dir, "ws/hard")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(dir, "ws/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// relative removes what differs between two copies of a tree from an answer: the
// directory, times, sizes of directories, and the order of names.
func relative(answer any, dir string) any {
	switch v := answer.(type) {
	case string:
		v = strings.NewReplacer(fileuri.Format(dir), "$D", dir, "$D").Replace(v)
		// Codex reports the failure of its helper.
		const failed = "fs sandbox helper failed with status exit status: 1: error building bubblewrap command: Fatal error: "
		return strings.TrimPrefix(v, failed)
	case []any:
		for i := range v {
			v[i] = relative(v[i], dir)
		}
		slices.SortFunc(v, func(a, b any) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
		return v
	case map[string]any:
		for key := range v {
			v[key] = relative(v[key], dir)
		}
		delete(v, "createdAtMs")
		delete(v, "modifiedAtMs")
		if v["isDirectory"] == true {
			delete(v, "size")
		}
		return v
	}
	return answer
}

// describeTree returns the files of a tree with their contents or targets.
func describeTree(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := make(map[string]string)
	err := filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		gone := errors.Is(err, fs.ErrNotExist) // since its parent was read
		if err != nil && !gone {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		if gone {
			delete(all, name)
			return nil
		}
		switch e.Type() {
		case fs.ModeSymlink:
			target, err := os.Readlink(path)
			all[name] = "-> " + strings.Replace(target, dir, "$D", 1)
			return err
		case 0:
			b, err := os.ReadFile(path)
			all[name] = string(b)
			return err
		default:
			all[name] = e.Type().String()
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}
