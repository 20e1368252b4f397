package spool_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path"
	"strings"
	"testing"
)

const module = "github.com/spool-run/spool"

// mayImport says which packages of ours a package may import. The arrows point
// one way: cmd → cli → {local, client} → spool, local → host, keeper, engines.
// What is not listed may not be imported.
var mayImport = map[string][]string{
	"":                                          {},
	"agent":                                     {""},
	"python":                                    {""},
	"internal/strict":                           {},
	"internal/pin":                              {},
	"internal/record":                           {""},
	"internal/lens":                             {"", "internal/screen"},
	"internal/export":                           {"", "internal/narrate", "internal/visible", "render"},
	"search":                                    {"", "internal/record", "internal/sieve", "internal/visible", "render"},
	"internal/sieve":                            {"", "internal/record", "internal/visible"},
	"internal/logtext":                          {},
	"internal/access":                           {"", "internal/sieve", "search", "internal/record", "internal/flock", "internal/privatedir", "internal/strict"},
	"internal/eventlog":                         {"", "internal/record"},
	"internal/runfile":                          {"", "internal/record", "internal/lazyregexp"},
	"internal/archive":                          {"", "internal/failpoint", "internal/flock", "internal/privatedir", "internal/store", "internal/pause"},
	"internal/archive/dir":                      {"internal/archive", "internal/failpoint"},
	"internal/archive/s3":                       {"internal/archive", "internal/archive/s3/minioinit"},
	"internal/archive/s3/minioinit":             {"internal/lateinit"},
	"internal/archive/natsobj":                  {"internal/archive", "internal/pause"},
	"internal/archive/place":                    {"", "internal/archive", "internal/archive/dir", "internal/archive/natsobj", "internal/archive/s3", "internal/privatedir"},
	"internal/s3test":                           {"internal/polltest", "internal/skiptest", "internal/testcache", "internal/tether"},
	"internal/blockfile":                        {},
	"internal/store":                            {"", "internal/sieve", "internal/runfile", "internal/blockfile", "internal/eventlog", "internal/record", "internal/failpoint", "internal/flock", "internal/spare", "internal/store/index", "internal/privatedir", "internal/workspace", "internal/lazyregexp"},
	"internal/store/index":                      {"internal/failpoint", "internal/flock"},
	"internal/workspace":                        {"", "internal/failpoint", "internal/flock"},
	"internal/inspect":                          {""},
	"internal/screen":                           {"", "internal/visible"},
	"internal/engine":                           {""},
	"internal/engine/audit":                     {"", "internal/engine"},
	"internal/engine/turns":                     {"", "internal/engine"},
	"internal/engine/enginetest":                {"", "internal/engine", "internal/eventlog"},
	"internal/egress":                           {"internal/pause"},
	"internal/isolate":                          {"", "internal/egress", "internal/engine", "internal/fdpass", "internal/forkexec", "internal/launch", "internal/seccomp", "internal/spare", "internal/strict"},
	"internal/engine/process":                   {"", "internal/engine", "internal/isolate", "internal/launch", "internal/meter", "internal/gopool", "internal/environ", "internal/spare", "internal/reactor", "internal/limits"},
	"internal/engine/kernel":                    {"", "internal/inspect", "internal/engine", "internal/isolate", "internal/engine/turns", "internal/launch", "internal/meter", "internal/environ", "internal/spare", "internal/strict", "internal/reactor", "internal/limits", "internal/fdpass", "internal/privatedir"},
	"internal/engine/agents":                    {"", "internal/engine", "internal/isolate", "internal/engine/turns", "internal/launch", "internal/environ", "internal/engine/agents/talk", "internal/engine/agents/policy", "internal/engine/agents/sessions", "internal/engine/agents/codex", "internal/engine/agents/claude", "internal/engine/agents/opencode", "internal/engine/agents/pi", "internal/engine/agents/acp", "internal/wire/rpc", "internal/flock", "internal/strict", "internal/limits", "internal/tail", "internal/privatedir", "internal/workspace"},
	"internal/engine/agents/talk":               {"", "internal/wire/rpc", "internal/lazyregexp"},
	"internal/engine/agents/talk/talktest":      {"", "internal/engine/agents/talk"},
	"internal/engine/agents/codex":              {"", "internal/engine/agents/talk", "internal/wire/rpc"},
	"internal/engine/agents/claude":             {"", "internal/engine/agents/talk"},
	"internal/engine/agents/opencode":           {"", "internal/engine/agents/talk"},
	"internal/engine/agents/pi":                 {"", "internal/engine/agents/talk"},
	"internal/engine/agents/acp":                {"", "internal/engine/agents/talk", "internal/wire/rpc"},
	"internal/engine/agents/policy":             {"", "internal/strict", "internal/lazyregexp"},
	"internal/engine/agents/sessions":           {"", "internal/flock", "internal/engine/agents/talk"},
	"internal/engine/agents/takopi":             {"", "internal/engine/agents/talk", "internal/engine/agents/sessions"},
	"internal/engine/sandbox":                   {"", "internal/inspect", "internal/engine", "internal/isolate", "internal/engine/turns", "internal/engine/sandbox/guest", "internal/engine/sandbox/vfs", "internal/strict", "internal/meter", "internal/limits"},
	"internal/engine/sandbox/sandboxtest":       {"", "internal/inspect", "internal/engine", "internal/engine/sandbox", "internal/engine/sandbox/guest", "internal/engine/sandbox/vfs", "internal/host", "internal/polltest"},
	"internal/engine/sandbox/guest":             {"", "internal/engine/sandbox/vfs"},
	"internal/engine/sandbox/pyodide":           {"", "internal/engine", "internal/engine/sandbox/guest", "internal/engine/sandbox/vfs", "internal/isolate", "internal/seccomp", "internal/fdpass", "internal/tail"},
	"internal/engine/sandbox/vfs":               {},
	"internal/engine/sandbox/wasipy":            {"", "internal/engine", "internal/engine/sandbox/guest", "internal/engine/sandbox/vfs", "internal/isolate", "internal/flock", "internal/seccomp", "internal/spare", "internal/fdpass", "internal/tail"},
	"internal/engine/sandbox/wasipy/build/pack": {},
	"internal/launch":                           {"", "internal/failpoint", "internal/forkexec", "internal/gopool"},
	"internal/forkexec":                         {},
	"internal/probe":                            {"internal/flock", "internal/launch", "internal/seccomp"},
	"internal/doctor":                           {"", "local", "internal/archive", "internal/host", "internal/isolate", "internal/launch", "internal/privatedir", "internal/probe"},
	"internal/flock":                            {},
	"internal/privatedir":                       {},
	"internal/environ":                          {""},
	"internal/seccomp":                          {},
	"internal/seccomp/seccomptest":              {"internal/seccomp", "internal/skiptest"},
	"internal/spare":                            {},
	"internal/meter":                            {""},
	"internal/reactor":                          {},
	"internal/limits":                           {"", "internal/meter"},
	"internal/ledger":                           {"", "internal/record"},
	"internal/runsql":                           {"", "agent", "internal/ledger", "internal/lazyregexp"},
	"internal/fdpass":                           {},
	"internal/tail":                             {},
	"internal/failpoint":                        {},
	"internal/gopool":                           {},
	"internal/contain":                          {},
	"internal/fdtable":                          {},
	"internal/lazyregexp":                       {},
	"internal/pause":                            {},
	"internal/pytest":                           {"internal/testcache"},
	"internal/visible":                          {"internal/lazyregexp"},
	"internal/narrate":                          {"", "internal/visible", "internal/lazyregexp"},
	"render":                                    {"", "internal/lens", "internal/narrate", "internal/visible"},
	"internal/host":                             {"", "internal/sieve", "internal/engine", "internal/eventlog", "internal/record", "internal/store", "internal/failpoint", "internal/gopool", "internal/flock", "internal/limits", "internal/privatedir", "internal/workspace"},
	"internal/host/backendtest":                 {"", "search", "internal/fifotest", "internal/inspect", "internal/polltest", "internal/record", "internal/skiptest"},
	"internal/web":                              {},
	"internal/webhook":                          {"", "internal/pause"},
	"internal/wire/rpc":                         {"internal/gopool"},
	"internal/wire/runproto":                    {"", "search", "internal/wire/rpc"},
	"internal/wire/execserver/fileuri":          {},
	"internal/wire/execserver":                  {"", "search", "internal/access", "internal/egress", "internal/environ", "internal/eventlog", "internal/wire/rpc", "internal/wire/runproto", "internal/wire/execserver/fileuri", "internal/gopool", "internal/record", "internal/strict", "internal/privatedir", "internal/bulkconn", "internal/contain", "internal/lazyregexp"},
	"internal/wire/httpapi":                     {"", "internal/web", "internal/export", "internal/ledger", "render", "search", "internal/access", "internal/lens", "internal/screen", "internal/strict", "internal/visible", "internal/wire/runproto", "internal/contain", "internal/gopool", "internal/lazyregexp"},
	"internal/wire/mcpapi":                      {"", "render", "internal/access", "internal/lens", "internal/strict", "internal/visible", "internal/contain"},
	"internal/wire/acpapi":                      {"", "internal/wire/rpc", "internal/pause", "internal/contain"},
	"internal/wire/zmtp":                        {},
	"internal/wire/jupyter":                     {"", "internal/inspect", "internal/wire/zmtp", "internal/lazyregexp"},
	"client":                                    {"", "internal/pin", "search", "internal/eventlog", "internal/wire/rpc", "internal/wire/runproto", "internal/peer", "internal/record", "internal/pause"},
	"serve":                                     {"", "internal/access", "internal/wire/execserver", "internal/wire/httpapi", "internal/wire/mcpapi"},
	"internal/keeper":                           {"", "internal/sieve", "internal/limits", "internal/engine", "internal/eventlog", "internal/host", "internal/store", "internal/wire/rpc", "internal/wire/runproto", "internal/gopool", "internal/flock", "internal/environ", "internal/engine/process", "internal/record", "internal/fdpass", "internal/peer", "internal/privatedir", "internal/pause"},
	"internal/cli":                              {"", "internal/archive", "internal/archive/place", "internal/pin", "internal/export", "internal/lens", "search", "internal/limits", "internal/inspect", "internal/prompt", "internal/access", "render", "client", "local", "internal/cluster", "internal/cluster/natsd", "internal/mirror", "internal/narrate", "internal/visible", "internal/runfile", "internal/collector", "internal/environ", "internal/fdtable", "internal/doctor", "internal/engine/agents/sessions", "internal/engine/agents/takopi", "internal/listen", "internal/netcut", "internal/privatedir", "internal/screen", "internal/strict", "internal/torture", "internal/wire/execserver", "internal/wire/acpapi", "internal/wire/httpapi", "internal/wire/jupyter", "internal/wire/mcpapi", "internal/wire/runproto", "internal/ledger", "internal/runsql", "internal/webhook", "internal/pause", "internal/bulkconn", "internal/lazyregexp"},
	"internal/cluster":                          {"", "client", "internal/failpoint", "internal/flock", "internal/mirror", "internal/peer", "internal/privatedir", "internal/record", "internal/bulkconn"},
	"internal/mirror":                           {"", "internal/privatedir", "internal/record", "internal/store"},
	"internal/cluster/natsd":                    {"internal/cluster", "internal/cluster/natsd/serverinit", "internal/pause"},
	"internal/cluster/natsd/serverinit":         {"internal/lateinit"},
	"internal/lateinit":                         {},
	"internal/collector":                        {},
	"internal/prompt":                           {},
	"internal/peer":                             {},
	"internal/listen":                           {"internal/access", "internal/flock", "internal/peer", "internal/pin", "internal/privatedir"},
	"internal/examplestest":                     {},
	"local":                                     {"", "internal/access", "internal/engine/audit", "internal/collector", "internal/engine", "internal/environ", "internal/engine/agents", "internal/engine/agents/policy", "internal/engine/kernel", "internal/engine/process", "internal/engine/sandbox", "internal/engine/sandbox/guest", "internal/engine/sandbox/pyodide", "internal/engine/sandbox/wasipy", "internal/environ", "internal/fdtable", "internal/host", "internal/isolate", "internal/keeper", "internal/launch", "internal/probe", "internal/store"},
	"internal/torture":                          {"", "client", "internal/engine/kernel", "internal/failpoint", "internal/host", "internal/netcut", "internal/store", "internal/wire/rpc", "internal/flock", "internal/pause"},
	"cmd/spool":                                 {"internal/cli", "local"},
	"internal/servertest":                       {"internal/polltest", "internal/tether"},
	"internal/polltest":                         {},
	"internal/netcut":                           {},
	"internal/tether":                           {},
	"internal/proxytest":                        {"internal/tether"},
	"internal/testcache":                        {"internal/flock"},
	"internal/npmtest":                          {"internal/testcache"},
	"internal/sdk":                              {},
	"internal/gvisortest":                       {"internal/skiptest", "internal/testcache"},
	"internal/bulkconn":                         {},
	"internal/disktest":                         {"internal/skiptest"},
	"internal/fifotest":                         {},
	"internal/leaktest":                         {},
	"internal/skiptest":                         {},
	"internal/modeltest":                        {},
	"internal/pyodidetest":                      {"internal/npmtest", "internal/testcache"},
	"internal/codextest":                        {"internal/fifotest", "internal/modeltest", "internal/netcut", "internal/npmtest", "internal/tether"},
	"internal/agenttest":                        {"internal/codextest", "internal/modeltest", "internal/npmtest"},
	"bench/internal/peers":                      {"", "client", "internal/host", "internal/npmtest", "internal/testcache"},
	"bench":                                     {"", "internal/logtext", "bench/internal/peers", "internal/eventlog", "internal/store", "internal/engine", "internal/engine/process", "internal/engine/agents", "internal/engine/kernel", "internal/host", "client", "internal/keeper", "internal/agenttest", "internal/codextest", "internal/pytest", "internal/testcache", "internal/modeltest", "internal/engine/sandbox", "internal/engine/sandbox/guest", "internal/engine/sandbox/pyodide", "internal/engine/sandbox/wasipy", "internal/pyodidetest", "internal/wire/execserver", "internal/isolate", "internal/npmtest", "internal/pause", "internal/proxytest", "internal/servertest"},
}

// words are the packages of public data. What may import the root may import
// them, except each other.
var words = []string{"agent", "python"}

// foreign says which packages may import a dependency that is not ours.
var foreign = map[string][]string{
	"github.com/BurntSushi/toml":                      {"internal/cli", "internal/engine/agents/policy", "internal/wire/execserver"},
	"github.com/JohannesKaufmann/html-to-markdown/v2": {"render"},
	"golang.org/x/net":                                {"render", "internal/egress"},
	"go.yaml.in/yaml/v3":                              {"internal/wire/execserver"},
	"github.com/coder/websocket":                      {"internal/wire/rpc", "internal/wire/execserver", "internal/wire/httpapi", "internal/doctor", "client", "internal/torture", "bench/internal/peers"},
	"github.com/nats-io":                              {"internal/cluster/natsd", "internal/archive/natsobj"},
	"github.com/creack/pty":                           {"internal/engine/process"},
	"github.com/segmentio/asm":                        {"internal/wire/execserver"},
	"github.com/segmentio/encoding":                   {"internal/keeper", "internal/record", "internal/wire/rpc", "internal/wire/execserver"},
	"github.com/spf13/cobra":                          {"internal/cli"},
	"github.com/spf13/pflag":                          {"internal/cli"},
	"github.com/tetratelabs/wazero":                   {"internal/engine/sandbox/wasipy"},
	"golang.org/x/sys":                                {"internal/engine/process", "internal/engine/agents", "internal/engine/kernel", "internal/engine/sandbox/pyodide", "internal/engine/sandbox/vfs", "internal/engine/sandbox/wasipy", "internal/launch", "internal/store", "internal/keeper", "internal/cli", "local", "internal/wire/execserver", "bench", "internal/codextest", "internal/torture", "internal/environ", "internal/seccomp", "internal/seccomp/seccomptest", "internal/reactor", "internal/fdpass", "internal/fdtable", "internal/forkexec", "internal/peer", "internal/probe", "internal/doctor", "internal/isolate", "internal/workspace", "internal/disktest"},
	"github.com/rogpeppe/go-internal":                 {"internal/workspace"},
	"github.com/minio/minio-go/v7":                    {"internal/archive/s3"},
	"github.com/klauspost/compress":                   {"internal/blockfile"},
	"github.com/minio/minlz":                          {"internal/blockfile"},
	"modernc.org/sqlite":                              {"internal/runsql"},
	"golang.org/x/term":                               {"internal/cli", "internal/torture"},
	"github.com/google/jsonschema-go":                 {"internal/wire/httpapi", "internal/wire/mcpapi"},
	"github.com/modelcontextprotocol/go-sdk":          {"internal/wire/mcpapi"},
	"go.uber.org/goleak":                              {"internal/leaktest"},
	"github.com/google/go-cmp":                        {"internal/engine/agents/talk/talktest", "internal/host/backendtest", "internal/engine/enginetest", "internal/codextest"},
}

// TestArrows fails on an import against the direction of the plan.
func TestArrows(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports,TestGoFiles", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p struct {
			ImportPath  string
			Imports     []string
			TestGoFiles []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		name := ours(p.ImportPath)
		if name == "" && len(p.TestGoFiles) > 0 {
			t.Errorf("%v must be of package spool_test: Go compiles every package again for tests inside of the one that all import", p.TestGoFiles)
		}
		allowed, ok := mayImport[name]
		if !ok {
			t.Errorf("package %q is not in the plan", name)
			continue
		}
		for _, imp := range p.Imports {
			switch {
			case imp == module || strings.HasPrefix(imp, module+"/"):
				if !contains(allowed, ours(imp)) && !(contains(words, ours(imp)) && contains(allowed, "")) {
					t.Errorf("%q must not import %q", name, ours(imp))
				}
			case strings.Contains(strings.SplitN(imp, "/", 2)[0], "."):
				checkForeign(t, name, imp)
			}
		}
	}
}

// TestArchitectureNamesEveryPackage fails on a package that docs/architecture.md
// does not name.
func TestArchitectureNamesEveryPackage(t *testing.T) {
	text, err := os.ReadFile("docs/architecture.md")
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(text), "## Packages")
	table, _, _ = strings.Cut(table, "\n## ")
	for name := range mayImport {
		if name == "" {
			continue
		}
		base := path.Base(name) + "/`"
		if !strings.Contains(table, "`"+base) && !strings.Contains(table, "/"+base) {
			t.Errorf("docs/architecture.md does not name package %s", name)
		}
	}
}

func checkForeign(t *testing.T, name, imp string) {
	t.Helper()
	for dep, users := range foreign {
		if imp == dep || strings.HasPrefix(imp, dep+"/") {
			if !contains(users, name) {
				t.Errorf("%q must not import %s", name, imp)
			}
			return
		}
	}
	t.Errorf("%q imports %s, which is not in the plan", name, imp)
}

func ours(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}
