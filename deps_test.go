package spool_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"strings"
	"testing"
)

const module = "github.com/spool-run/spool"

// mayImport says which packages of ours a package may import. The arrows point
// one way: cmd → cli → wire → spool ← host → engine → internal/launch. What is
// not listed may not be imported.
var mayImport = map[string][]string{
	"":                                 {},
	"eventlog":                         {""},
	"store":                            {"", "eventlog", "internal/failpoint"},
	"engine":                           {""},
	"engine/enginetest":                {"", "engine", "eventlog"},
	"engine/process":                   {"", "engine", "internal/launch", "internal/tail", "internal/crew"},
	"engine/kernel":                    {"", "engine", "engine/process", "internal/launch", "internal/tail"},
	"engine/agent":                     {"", "engine", "engine/process", "internal/launch", "wire/rpc"},
	"engine/sandbox":                   {"", "engine", "engine/sandbox/guest", "engine/sandbox/vfs"},
	"engine/sandbox/sandboxtest":       {"", "engine", "engine/sandbox", "engine/sandbox/guest", "host"},
	"engine/sandbox/guest":             {"", "engine/sandbox/vfs"},
	"engine/sandbox/pyodide":           {"", "engine/sandbox/guest", "engine/sandbox/vfs"},
	"engine/sandbox/vfs":               {},
	"engine/sandbox/wasipy":            {"", "engine/sandbox/guest", "engine/sandbox/vfs"},
	"engine/sandbox/wasipy/build/pack": {},
	"internal/launch":                  {"internal/failpoint", "internal/crew"},
	"internal/failpoint":               {},
	"internal/crew":                    {},
	"internal/tail":                    {""},
	"internal/pytest":                  {"internal/testcache"},
	"render":                           {""},
	"host":                             {"", "engine", "eventlog", "store", "internal/failpoint", "internal/crew"},
	"host/backendtest":                 {""},
	"wire/rpc":                         {"internal/crew"},
	"wire/runproto":                    {"", "wire/rpc"},
	"wire/execserver/fileuri":          {},
	"wire/execserver":                  {"", "eventlog", "wire/rpc", "wire/runproto", "wire/execserver/fileuri", "internal/crew"},
	"client":                           {"", "eventlog", "wire/rpc", "wire/runproto"},
	"keeper":                           {"", "engine/process", "eventlog", "host", "store", "wire/rpc", "wire/runproto", "internal/crew"},
	"cli":                              {"", "render", "eventlog", "store", "engine", "engine/agent", "engine/kernel", "engine/process", "engine/sandbox", "engine/sandbox/guest", "engine/sandbox/pyodide", "engine/sandbox/wasipy", "internal/launch", "internal/netcut", "host", "client", "keeper", "wire/execserver", "torture"},
	"torture":                          {"", "client", "engine/kernel", "host", "internal/netcut", "wire/rpc"},
	"cmd/spool":                        {"cli"},
	"internal/servertest":              {"internal/tether"},
	"internal/netcut":                  {},
	"internal/tether":                  {},
	"internal/testcache":               {},
	"internal/npmtest":                 {"internal/testcache"},
	"internal/fifotest":                {},
	"internal/modeltest":               {},
	"internal/pyodidetest":             {"internal/npmtest", "internal/testcache"},
	"internal/codextest":               {"internal/fifotest", "internal/modeltest", "internal/netcut", "internal/npmtest", "internal/tether"},
	"internal/agenttest":               {"internal/codextest", "internal/modeltest", "internal/npmtest"},
	"bench":                            {"", "eventlog", "store", "engine", "engine/process", "engine/agent", "engine/kernel", "host", "client", "keeper", "internal/agenttest", "internal/codextest", "internal/pytest", "internal/testcache", "internal/modeltest", "engine/sandbox", "engine/sandbox/guest", "engine/sandbox/pyodide", "engine/sandbox/wasipy", "internal/pyodidetest", "wire/execserver"},
}

// foreign says which packages may import a dependency that is not ours.
var foreign = map[string][]string{
	"github.com/BurntSushi/toml":                      {"engine/agent"},
	"github.com/JohannesKaufmann/html-to-markdown/v2": {"render"},
	"golang.org/x/net":                                {"render"},
	"github.com/coder/websocket":                      {"wire/rpc", "wire/execserver", "client", "torture"},
	"github.com/creack/pty":                           {"engine/process"},
	"github.com/segmentio/asm":                        {"wire/execserver"},
	"github.com/segmentio/encoding":                   {"keeper", "wire/rpc", "wire/execserver"},
	"github.com/spf13/cobra":                          {"cli"},
	"github.com/spf13/pflag":                          {"cli"},
	"github.com/tetratelabs/wazero":                   {"engine/sandbox/wasipy"},
	"golang.org/x/sys":                                {"engine/process", "engine/agent", "engine/kernel", "engine/sandbox/pyodide", "engine/sandbox/vfs", "engine/sandbox/wasipy", "internal/launch", "store", "keeper", "cli", "wire/execserver", "bench", "internal/codextest", "torture"},
	"golang.org/x/term":                               {"cli", "torture"},
	"github.com/google/go-cmp":                        {"host/backendtest", "engine/enginetest", "internal/codextest"},
}

// TestArrows fails on an import against the direction of the plan.
func TestArrows(t *testing.T) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	dec := json.NewDecoder(bytes.NewReader(out))
	for {
		var p struct {
			ImportPath string
			Imports    []string
		}
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return
		} else if err != nil {
			t.Fatal(err)
		}
		name := ours(p.ImportPath)
		allowed, ok := mayImport[name]
		if !ok {
			t.Errorf("package %q is not in the plan", name)
			continue
		}
		for _, imp := range p.Imports {
			switch {
			case imp == module || strings.HasPrefix(imp, module+"/"):
				if !contains(allowed, ours(imp)) {
					t.Errorf("%q must not import %q", name, ours(imp))
				}
			case strings.Contains(strings.SplitN(imp, "/", 2)[0], "."):
				checkForeign(t, name, imp)
			}
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
