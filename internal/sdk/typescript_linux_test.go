package sdk

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/spool-run/spool/internal/npmtest"
	"github.com/spool-run/spool/internal/servertest"
)

// typescriptDir is the directory of the TypeScript SDK.
const typescriptDir = "../../sdk/typescript"

// compiled returns a directory with the TypeScript SDK, compiled.
func compiled(t *testing.T) string {
	t.Helper()
	tsc, err := npmtest.Program{
		Name: "typescript-7.0.2", Packages: []string{"typescript@7.0.2", "@types/node@20.19.0"}, File: "node_modules/typescript/bin/tsc",
	}.Cached()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, part := range []string{"src", "test"} {
		if err := os.CopyFS(filepath.Join(dir, part), os.DirFS(filepath.Join(typescriptDir, part))); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"package.json", "tsconfig.json", "platform.mjs", "README.md"} {
		b, err := os.ReadFile(filepath.Join(typescriptDir, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, file), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	run(t, dir, nil, "node", tsc, "--typeRoots", filepath.Join(filepath.Dir(tsc), "../../@types"))
	return dir
}

// TestTypeScript compiles the TypeScript SDK and has it pass its tests against the
// real server.
func TestTypeScript(t *testing.T) {
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
	dir, platform, app := compiled(t), t.TempDir(), t.TempDir()
	run(t, dir, nil, "node", "platform.mjs", servertest.Binary(t), "linux", machine.node, platform)
	run(t, dir, nil, "npm", "pack", "--silent", "--pack-destination", app)
	run(t, platform, nil, "npm", "pack", "--silent", "--pack-destination", app)
	if err := os.WriteFile(filepath.Join(app, "package.json"), []byte(`{"type":"module"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	packages, err := filepath.Glob(filepath.Join(app, "*.tgz"))
	if err != nil || len(packages) != 2 {
		t.Fatalf("packed %q: %v", packages, err)
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
