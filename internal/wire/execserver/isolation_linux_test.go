package execserver_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/audit"
	"github.com/spool-run/spool/internal/engine/process"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/wire/execserver"
	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/python"
)

// blobEngine starts processes, and stores a blob for each that an event refers to.
type blobEngine struct{ *process.Engine }

func (e blobEngine) Start(ctx context.Context, spec spool.Spec, out engine.Sink) (engine.Session, error) {
	blob, err := out.PutBlob("text/plain", strings.NewReader("blob of "+spec.Name))
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(map[string]any{"text/plain": blob})
	if err != nil {
		return nil, err
	}
	if _, err := out.Append(spool.Event{Kind: python.KindDisplay, Data: data}); err != nil {
		return nil, err
	}
	return e.Engine.Start(ctx, spec, out)
}

// shared is a server that several subjects share.
type shared struct {
	*testing.T
	url    string
	tokens string // path of the token file
	audit  *access.Audit
	host   *host.Host
}

func newShared(t *testing.T) *shared {
	t.Helper()
	processes := func(owner string) (*process.Engine, error) { return process.New(process.Options{Owner: owner}) }
	measure := func(pids []int) (map[int]spool.Resources, error) {
		used := make(map[int]spool.Resources)
		for _, pid := range pids {
			used[pid] = spool.Resources{Processes: 1}
		}
		return used, nil
	}
	h, err := host.Open(host.Options{Dir: t.TempDir(), Measure: measure, Engines: map[string]host.NewEngine{
		spool.EngineProcess: func(owner string) (engine.Engine, error) { return processes(owner) },
		"blob": func(owner string) (engine.Engine, error) {
			e, err := processes(owner)
			return blobEngine{e}, err
		},
		access.AuditEngine: func(string) (engine.Engine, error) { return audit.Engine{}, nil },
	}})
	if err != nil {
		t.Fatal(err)
	}
	s := &shared{T: t, host: h, tokens: filepath.Join(t.TempDir(), access.TokenFileName)}
	s.token("first", access.Read) // makes the file
	auth, err := access.OpenTokens(s.tokens)
	if err != nil {
		t.Fatal(err)
	}
	if s.audit, err = access.OpenAudit(t.Context(), h, "test", nil); err != nil {
		t.Fatal(err)
	}
	server := execserver.New(execserver.Options{Backend: h, Auth: auth, Audit: s.audit})
	web := httptest.NewServer(server)
	s.url = strings.Replace(web.URL, "http://", "ws://", 1)
	t.Cleanup(func() {
		server.Close()
		web.Close()
		if err := errors.Join(s.audit.Close(), h.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

// token makes a token. The name is "SUBJECT" or "SUBJECT-SUFFIX".
func (s *shared) token(name string, scopes ...access.Scope) string {
	s.Helper()
	subject, _, _ := strings.Cut(name, "-")
	_, secret, err := access.CreateToken(s.tokens, access.Token{Name: name, Subject: subject, Scopes: scopes})
	if err != nil {
		s.Fatal(err)
	}
	return secret
}

// dial connects a subject with a new token; without scopes it has the usual ones.
func (s *shared) dial(name string, scopes ...access.Scope) *client.Client {
	s.Helper()
	c, err := client.Dial(s.Context(), s.url, client.Options{Token: s.token(name, scopes...), Reconnect: -1})
	if err != nil {
		s.Fatal(err)
	}
	s.Cleanup(func() {
		if err := c.Close(); err != nil {
			s.Error(err)
		}
	})
	return c
}

// calls makes every call of a backend that names a run, with its error.
func calls(t *testing.T, b spool.Backend, id spool.RunID, d spool.Digest) map[string]error {
	t.Helper()
	ctx := t.Context()
	errs := make(map[string]error)
	_, errs["stat"] = b.Stat(ctx, id)
	_, errs["read"] = b.Read(ctx, id, spool.Query{})
	for _, err := range b.Follow(ctx, id, 0) {
		errs["follow"] = err
		break
	}
	_, errs["stdin"] = b.Send(ctx, id, spool.Input{Kind: spool.InputStdin, Bytes: []byte("x")})
	_, errs["eof"] = b.Send(ctx, id, spool.Input{Kind: spool.InputEOF})
	_, errs["answer"] = b.Send(ctx, id, spool.Input{Kind: spool.InputAnswer, Data: json.RawMessage(`{"ask":1}`)})
	for _, op := range []spool.ControlOp{spool.ControlInterrupt, spool.ControlSignal, spool.ControlResize, spool.ControlStop, spool.ControlKill, spool.ControlRestart} {
		errs[string(op)] = b.Control(ctx, id, spool.Control{Op: op, Signal: "SIGHUP", Size: spool.Size{Rows: 1, Cols: 1}})
	}
	r, err := b.Blob(ctx, id, d)
	if err == nil {
		_, err = io.ReadAll(r)
		err = errors.Join(err, r.Close())
	}
	errs["blob"] = err
	_, errs["remove"] = b.(spool.Remover).Remove(ctx, []spool.RunID{id}, true)
	_, errs["rename"] = b.(spool.Renamer).Rename(ctx, id, "renamed")
	_, errs["measure"] = b.(spool.Meter).Measure(ctx, []spool.RunID{id})
	return errs
}

func ids(t *testing.T, b spool.Backend, f spool.Filter) (found []spool.RunID) {
	t.Helper()
	for info, err := range b.List(t.Context(), f) {
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, info.ID)
	}
	return found
}

// blobOf returns the blob of the first event of a run.
func blobOf(t *testing.T, b spool.Backend, id spool.RunID) spool.Digest {
	t.Helper()
	page, err := b.Read(t.Context(), id, spool.Query{})
	if err != nil {
		t.Fatal(err)
	}
	var forms map[string]spool.Blob
	if err := json.Unmarshal(page.Events[0].Data, &forms); err != nil {
		t.Fatal(err)
	}
	return forms["text/plain"].Digest
}

func TestSubjectsAreIsolated(t *testing.T) {
	s := newShared(t)
	usual := append(access.DefaultScopes(), access.Delete)
	alice, bob, admin := s.dial("alice", usual...), s.dial("bob", usual...), s.dial("root", access.Admin)
	start := func(b spool.Backend, name string) spool.RunID {
		t.Helper()
		spec := script("read x")
		spec.Engine, spec.Name, spec.Stdin, spec.Labels = "blob", name, true, map[string]string{"k": "v"}
		info, err := b.Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		return info.ID
	}
	hers, his := start(alice, "hers"), start(bob, "his")
	secret := blobOf(t, alice, hers)

	for what, err := range calls(t, bob, hers, secret) {
		if !errors.Is(err, spool.ErrNotFound) || !strings.Contains(err.Error(), string(hers)) {
			t.Errorf("%s of alice's run: %v", what, err)
		}
	}
	unknown := calls(t, bob, "nosuchrun", secret)
	for what, err := range calls(t, bob, hers, secret) {
		if got, want := err.Error(), strings.ReplaceAll(unknown[what].Error(), "nosuchrun", string(hers)); got != want {
			t.Errorf("%s tells alice's run from none: %q, and not %q", what, got, want)
		}
	}
	if info, err := s.host.Stat(t.Context(), hers); err != nil || info.State != spool.StateRunning {
		t.Fatalf("bob did something to alice's run: %v, %v", info.State, err)
	}
	// A blob of another subject is not found in one's own run either.
	if _, err := bob.Blob(t.Context(), his, secret); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("alice's blob of bob's run: %v", err)
	}
	for _, f := range []spool.Filter{
		{}, {Name: "hers"}, {Prefix: hers}, {Prefix: hers[:3], Live: true}, {Labels: map[string]string{"k": "v"}},
		{Labels: map[string]string{access.LabelSubject: "alice"}}, {Labels: map[string]string{access.LabelSubject: ""}}, {Engine: access.AuditEngine},
	} {
		for _, id := range ids(t, bob, f) {
			if id != his {
				t.Errorf("%+v lists %s", f, id)
			}
		}
	}
	if got := ids(t, bob, spool.Filter{}); len(got) != 1 || got[0] != his {
		t.Errorf("bob sees %q", got)
	}
	if got := ids(t, admin, spool.Filter{}); len(got) != 3 { // with the audit log
		t.Errorf("admin sees %q", got)
	}
	for _, text := range []string{"hers", string(hers), string(hers[:6])} {
		if r, err := spool.Find(t.Context(), bob, text); err == nil {
			t.Errorf("bob finds %s: %s", text, r.ID())
		}
	}
	// The same id and spec does not give the run of another subject, nor does a
	// fork.
	spec := script("read x")
	spec.ID = hers
	spec.Engine, spec.Stdin = "blob", true
	if _, err := bob.Start(t.Context(), spec); !errors.Is(err, spool.ErrExists) {
		t.Errorf("start with alice's id: %v", err)
	}
	fork := spool.Spec{Engine: python.EngineKernel, Config: json.RawMessage(fmt.Sprintf(`{"fork":%q}`, hers))}
	if _, err := bob.Start(t.Context(), fork); !errors.Is(err, spool.ErrNotFound) {
		t.Errorf("fork of alice's run: %v", err)
	}
	spec = script("true")
	spec.Labels = map[string]string{access.LabelSubject: "alice"}
	if _, err := bob.Start(t.Context(), spec); !errors.Is(err, spool.ErrDenied) {
		t.Errorf("start as alice: %v", err)
	}

	for name, b := range map[string]*client.Client{"bob": bob, "nobody": s.dial("nobody")} {
		used, err := b.Measure(t.Context(), nil)
		if name == "bob" && len(used) != 1 {
			t.Errorf("bob measures %d runs", len(used))
		}
		for _, r := range used {
			if r.Run != his || name != "bob" {
				t.Errorf("%s measures %s", name, r.Run)
			}
		}
		if err != nil {
			t.Errorf("measure: %v", err)
		}
	}
	if got, err := bob.Storage(t.Context()); err != nil || got.LiveRuns != 1 {
		t.Errorf("storage: %+v, %v", got, err)
	}
	if _, err := admin.Remove(t.Context(), []spool.RunID{s.audit.Run()}, true); !errors.Is(err, spool.ErrDenied) {
		t.Errorf("admin removes the audit log: %v", err)
	}

	// The subject itself and admin can do all of it.
	for name, b := range map[string]spool.Backend{"alice": alice, "admin": admin} {
		id := start(alice, "own")
		for what, err := range calls(t, b, id, blobOf(t, b, id)) {
			if errors.Is(err, spool.ErrNotFound) || errors.Is(err, spool.ErrDenied) {
				t.Errorf("%s of %s's own run: %v", what, name, err)
			}
		}
	}
}

func TestScopesAreChecked(t *testing.T) {
	s := newShared(t)
	owner := s.dial("alice")
	spec := script("read x")
	spec.Engine, spec.Stdin = "blob", true
	scopes := map[string]access.Scope{
		"stat": access.Read, "read": access.Read, "follow": access.Read, "blob": access.Read,
		"stdin": access.Input, "eof": access.Input, "answer": access.Answer,
		"interrupt": access.Control, "signal": access.Control, "resize": access.Control,
		"stop": access.Control, "kill": access.Control, "restart": access.Control, "remove": access.Delete,
		"rename": access.Delete, "measure": access.Read,
	}
	for i, only := range []access.Scope{access.Read, access.Input, access.Answer, access.Control, access.Delete, access.StartOf("process"), access.FilesOf("/")} {
		info, err := owner.Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		b := s.dial(fmt.Sprintf("alice-%d", i), only)
		for what, err := range calls(t, b, info.ID, blobOf(t, owner, info.ID)) {
			if denied := errors.Is(err, spool.ErrDenied); denied != (scopes[what] != only) {
				t.Errorf("%s with %s: %v", what, only, err)
			}
			if scopes[what] != only && !strings.Contains(err.Error(), string(scopes[what])) {
				t.Errorf("%s with %s does not name the scope: %v", what, only, err)
			}
		}
		for _, err := range b.List(t.Context(), spool.Filter{}) {
			if denied := errors.Is(err, spool.ErrDenied); denied != (only != access.Read) {
				t.Errorf("list with %s: %v", only, err)
			}
		}
		_, err = b.Start(t.Context(), script("true"))
		if (err == nil) != (only == access.StartOf("process")) || err != nil && !errors.Is(err, spool.ErrDenied) {
			t.Errorf("start with %s: %v", only, err)
		}
		if _, err = b.Start(t.Context(), spec); !errors.Is(err, spool.ErrDenied) {
			t.Errorf("start of another engine with %s: %v", only, err)
		}
	}
}

// The scope files:DIRECTORY bounds fs/* and what reads files beside it.
func TestFilesScope(t *testing.T) {
	s := newShared(t)
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"root/skill", "outside/skill"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, f := range []string{"root/f", "root/skill/SKILL.md", "outside/f", "outside/skill/SKILL.md"} {
		if err := os.WriteFile(filepath.Join(dir, f), []byte("contents"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, target := range map[string]string{"root/link": "../outside", "root/new": "../outside/new"} {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	uri := func(path string) string { return "file://" + dir + "/" + path }
	walk := map[string]any{"maxDepth": 5, "maxDirectories": 100, "maxEntries": 100, "followDirectorySymlinks": true}
	requests := func(path string) map[string]map[string]any {
		return map[string]map[string]any{
			"fs/readFile": {"path": uri(path)}, "fs/getMetadata": {"path": uri(path)}, "fs/canonicalize": {"path": uri(path)},
			"fs/readDirectory": {"path": uri(path)}, "fs/walk": {"path": uri(path), "options": walk},
			"fs/open": {"path": uri(path), "handleId": "h"}, "fs/writeFile": {"path": uri(path), "dataBase64": "eA=="},
			"fs/createDirectory": {"path": uri(path)}, "fs/watchMissing": {"watchId": 1, "missing": []string{uri(path)}},
			"fs/copy":                    {"sourcePath": uri(path), "destinationPath": uri("root/copy"), "recursive": true},
			"fs/remove":                  {"path": uri(path), "recursive": false},
			"capabilityRoots/discoverV1": {"roots": []any{map[string]any{"id": "r", "path": uri(path)}}},
		}
	}
	connect := func(name string, scopes ...access.Scope) *runClient {
		c := dialAs(t, s.url, s.token(name, scopes...))
		if _, err := c.initialize(""); err != nil {
			t.Fatal(err)
		}
		return c
	}
	isDenied := func(err error) bool { return err != nil && strings.Contains(err.Error(), "denied: ") }

	none := connect("none", access.DefaultScopes()...)
	for method, params := range requests("root/f") {
		if err := none.call(method, params, nil); !isDenied(err) {
			t.Errorf("%s without the scope: %v", method, err)
		}
	}
	some := connect("some", access.FilesOf(dir+"/root"))
	for _, path := range []string{"outside", "outside/f", "root/link", "root/link/f", "root/new", "root/../outside/f"} {
		for method, params := range requests(path) {
			if err := some.call(method, params, nil); !isDenied(err) {
				t.Errorf("%s of %s: %v", method, path, err)
			}
		}
	}
	if err := some.call("fs/copy", map[string]any{"sourcePath": uri("root/f"), "destinationPath": uri("root/link/x"), "recursive": false}, nil); !isDenied(err) {
		t.Errorf("copy to the outside: %v", err)
	}
	if b, err := os.ReadFile(filepath.Join(dir, "outside/f")); err != nil || string(b) != "contents" {
		t.Errorf("outside: %q, %v", b, err)
	}
	// A walk does not leave the root by a link.
	var raw json.RawMessage
	some.must("fs/walk", map[string]any{"path": uri("root"), "options": walk}, &raw)
	if !strings.Contains(string(raw), "root/f") || strings.Contains(string(raw), "link") {
		t.Errorf("walk: %s", raw)
	}
	// What reads files of many directories needs all of them.
	environment := map[string]map[string]any{
		"environmentConfig/read":     {"cwd": uri("root"), "configPaths": [][]string{{"config.toml"}}, "requirementsPaths": [][]string{}},
		"capabilityRoots/discoverV1": {"roots": []any{map[string]any{"id": "r", "path": uri("root")}}},
		"capabilities/discoverV2":    {"cwd": uri("root")},
	}
	for method, params := range environment {
		if err := some.call(method, params, nil); !isDenied(err) {
			t.Errorf("%s: %v", method, err)
		}
	}
	some.must("environment/info", nil, nil)
	some.must("fs/readFile", map[string]any{"path": uri("root/f")}, nil)
	some.must("fs/writeFile", map[string]any{"path": uri("root/g"), "dataBase64": "eA=="}, nil)
	// A recursive copy does not follow a link of its destination.
	for _, d := range []string{"root/from/link"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "root/from/link/f"), []byte("changed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := some.call("fs/copy", map[string]any{"sourcePath": uri("root/from"), "destinationPath": uri("root"), "recursive": true}, nil); !isDenied(err) {
		t.Errorf("copy through a link: %v", err)
	}
	if err := some.call("http/request", map[string]any{}, nil); !isDenied(err) {
		t.Errorf("http/request without a scope to start: %v", err)
	}
	if err := connect("sandboxes", access.StartOf("sandbox")).call("http/request", map[string]any{}, nil); !isDenied(err) {
		t.Errorf("http/request of a token that starts only sandboxes: %v", err)
	}
	all := connect("all", access.FilesOf("/"))
	all.must("fs/readFile", map[string]any{"path": uri("outside/f")}, nil)
	for method, params := range environment {
		all.must(method, params, nil)
	}
}

// The audit log says who connected and who was refused.
func TestAuditOfConnections(t *testing.T) {
	s := newShared(t)
	alice := dialAs(t, s.url, s.token("alice"))
	if _, err := alice.initialize(""); err != nil {
		t.Fatal(err)
	}
	startProcess(alice, "p", "true")
	for m := (rpc.Message{}); m.Method != "process/closed"; { // she has read it
		_, _, m = alice.next()
	}
	const wrong = "spool_wrong000_token"
	if _, err := client.Dial(t.Context(), s.url, client.Options{Token: wrong, Reconnect: -1}); err == nil {
		t.Fatal("a wrong token is accepted")
	}
	if _, err := access.RevokeToken(s.tokens, "alice"); err != nil {
		t.Fatal(err)
	}
	alice.ends()
	admin := s.dial("root", access.Admin)
	var acts []string
	for e, err := range admin.Follow(t.Context(), s.audit.Run(), 0) {
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(e.Data), wrong) {
			t.Errorf("the audit log holds a token: %s", e.Data)
		}
		var n spool.Notice
		var entry access.Entry
		if err := errors.Join(json.Unmarshal(e.Data, &n), json.Unmarshal(n.Data, &entry)); err != nil {
			t.Fatal(err)
		}
		acts = append(acts, entry.Subject+" "+entry.Act+" "+entry.What+" "+entry.Reason)
		if entry.Subject == "alice" && entry.Act == access.ActDisconnect {
			break
		}
	}
	all := strings.Join(acts, "\n")
	for _, want := range []string{"alice connect", "alice start process", "alice read", " denied connect invalid websocket bearer token", "alice disconnect  denied: the token of alice was revoked"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
}
