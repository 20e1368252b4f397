package sdk

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/spool-run/spool/internal/npmtest"
	"github.com/spool-run/spool/internal/servertest"
)

// typescriptDir is the directory of the TypeScript SDK.
const typescriptDir = "../../sdk/typescript"

// npmProgram installs packages, in the versions that the SDK is developed with, and returns
// the path of a program of the first.
func npmProgram(file string, packages ...string) (string, error) {
	text, err := os.ReadFile(typescriptDir + "/package.json")
	if err != nil {
		return "", err
	}
	var about struct {
		DevDependencies map[string]string `json:"devDependencies"`
	}
	if err := json.Unmarshal(text, &about); err != nil {
		return "", fmt.Errorf("package.json: %w", err)
	}
	name := filepath.Base(packages[0]) + "-" + about.DevDependencies[packages[0]]
	for i, p := range packages {
		packages[i] = p + "@" + about.DevDependencies[p]
	}
	return npmtest.Program{Name: name, Packages: packages, File: file}.Cached()
}

// compile compiles the TypeScript in a directory.
func compile(dir string, args ...string) error {
	tsc, err := npmProgram("node_modules/typescript/bin/tsc", "typescript", "@types/node")
	if err != nil {
		return err
	}
	cmd := exec.Command("node", append([]string{tsc, "--typeRoots", filepath.Join(filepath.Dir(tsc), "../../@types")}, args...)...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("compile: %w\n%s", err, out)
	}
	return nil
}

// compiled returns a directory with the TypeScript SDK, compiled, which tests share.
func compiled(t *testing.T) string {
	t.Helper()
	dir, err := compileOnce()
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

var compileOnce = sync.OnceValues(func() (string, error) {
	dir := filepath.Join(shared, "typescript")
	for _, part := range []string{"src", "test"} {
		if err := os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join(typescriptDir, part))); err != nil {
			return "", err
		}
	}
	for _, file := range []string{"package.json", "tsconfig.json", "platform.mjs", "README.md"} {
		b, err := os.ReadFile(filepath.Join(typescriptDir, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), b, 0o644)
		}
		if err != nil {
			return "", err
		}
	}
	return dir, compile(dir)
})

// TestTypeScriptLint checks the style of the TypeScript SDK, its tests and the examples.
func TestTypeScriptLint(t *testing.T) {
	t.Parallel()
	biome, err := npmProgram("node_modules/@biomejs/biome/bin/biome", "@biomejs/biome")
	if err != nil {
		t.Fatal(err)
	}
	run(t, typescriptDir, nil, "node", biome, "lint", "--error-on-warnings", "src", "test", "platform.mjs", "../../examples/typescript")
}

// TestTypeScript compiles the TypeScript SDK and has it pass its tests against the
// real server.
func TestTypeScript(t *testing.T) {
	t.Parallel()
	dir := compiled(t)
	tests, err := filepath.Glob(filepath.Join(dir, "test", "*.test.js"))
	if err != nil || len(tests) == 0 {
		t.Fatal("no tests", err)
	}
	env := []string{"SPOOL_PROGRAM=" + servertest.Binary(t), "SPOOL_TYPESCRIPT_PAGE=" + absolute(t, "../../docs/typescript.md")}
	run(t, dir, env, append([]string{"node", "--test"}, tests...)...)
}

// TestPackages installs the package and the one with the program into a fresh
// directory, and runs a command there.
func TestPackages(t *testing.T) {
	t.Parallel()
	dir, platform, app := compiled(t), t.TempDir(), t.TempDir()
	run(t, dir, nil, "node", "platform.mjs", servertest.Binary(t), "linux", machine.node, platform)
	fast := []string{"NODE_OPTIONS=--require=" + absolute(t, "testdata/fast/npm.cjs")}
	run(t, dir, fast, "npm", "pack", "--silent", "--pack-destination", app)
	run(t, platform, fast, "npm", "pack", "--silent", "--pack-destination", app)
	if err := os.WriteFile(filepath.Join(app, "package.json"), []byte(`{"type":"module"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	packages, err := filepath.Glob(filepath.Join(app, "*.tgz"))
	if err != nil || len(packages) != 2 {
		t.Fatalf("packed %q: %v", packages, err)
	}
	for _, file := range packages {
		checkCarried(t, file)
	}
	run(t, app, nil, append([]string{"npm", "install", "--silent", "--offline", "--no-audit", "--no-fund", "--omit=optional"}, packages...)...)
	const program = `
import { local } from "@spool-run/sdk/node";
const spool = await local({ state: process.argv[2] });
process.stdout.write(await (await spool.run(["echo", "it works"])).text());
process.exit();
`
	if err := os.WriteFile(filepath.Join(app, "main.js"), []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	state := servertest.StateDir(t)
	if out := run(t, app, []string{"SPOOL_PROGRAM="}, "node", "main.js", state); out != "it works\n" {
		t.Errorf("printed %q", out)
	}
	stopServer(t, state)
}
