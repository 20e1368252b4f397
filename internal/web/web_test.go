package web

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/skiptest"
	"github.com/spool-run/spool/internal/testcache"
)

// modules returns a directory with the packages of the lock file, which is installed in
// the user's cache directory the first time.
func modules(t *testing.T) string {
	t.Helper()
	npm, err := exec.LookPath("npm")
	if err != nil {
		skiptest.Missing(t, "npm is needed to build the console: %v", err)
	}
	lock, err := os.ReadFile("package-lock.json")
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(lock)
	dir, err := testcache.Dir("console-" + hex.EncodeToString(sum[:8]))
	if err != nil {
		t.Fatal(err)
	}
	err = testcache.Install{Tries: testcache.Downloads, Fill: func(ctx context.Context, dir string) error {
		for _, name := range []string{"package.json", "package-lock.json"} {
			b, err := os.ReadFile(name)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), b, 0o644)
			}
			if err != nil {
				return err
			}
		}
		_, err := testcache.Run(ctx, npm, "ci", "--prefix", dir, "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")
		return err
	}}.Into(dir)
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "node_modules")
}

// sources returns a copy of the sources with their packages, as they lie in the module.
func sources(t *testing.T) string {
	t.Helper()
	packages := modules(t)
	dir := t.TempDir()
	web := filepath.Join(dir, "internal", "web")
	for from, to := range map[string]string{"src": "src", "static": "static", "test": "test", "../../sdk/typescript/src": "../../sdk/typescript/src"} {
		if err := os.CopyFS(filepath.Join(web, to), os.DirFS(from)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"package.json", "tsconfig.json", "build.mjs"} {
		b, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(web, name), b, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(packages, filepath.Join(web, "node_modules")); err != nil {
		t.Fatal(err)
	}
	return web
}

// run runs a command and fails the test if that fails.
func run(t *testing.T, dir string, argv ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(argv, " "), err, out)
	}
}

// plain returns the content of a compressed file.
func plain(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		t.Fatal(name, err)
	}
	if b, err = io.ReadAll(r); err != nil {
		t.Fatal(name, err)
	}
	return b
}

// TestDist builds the console and compares it with the one that is in the binary. The
// build fails if a part is larger than it may be.
func TestDist(t *testing.T) {
	dir := sources(t)
	run(t, dir, "node", "build.mjs")
	made, err := filepath.Glob(filepath.Join(dir, "dist", "*"))
	if err != nil || len(made) == 0 {
		t.Fatal("nothing was built", err)
	}
	have, err := filepath.Glob("dist/*")
	if err != nil || len(have) != len(made) {
		t.Fatalf("dist has %q, and the build made %q: run node build.mjs in internal/web", have, made)
	}
	for _, name := range made {
		if !bytes.Equal(plain(t, name), plain(t, filepath.Join("dist", filepath.Base(name)))) {
			t.Errorf("dist/%s is not what its sources give: run node build.mjs in internal/web", filepath.Base(name))
		}
	}
}

// TestSources checks the types of the console, and runs the tests of its parts that need
// no browser.
func TestSources(t *testing.T) {
	dir := sources(t)
	run(t, dir, "node", "node_modules/typescript/bin/tsc")
	tests, err := filepath.Glob(filepath.Join(dir, "test", "*.test.ts"))
	if err != nil || len(tests) == 0 {
		t.Fatal("no tests", err)
	}
	run(t, dir, append([]string{"node", "node_modules/esbuild/bin/esbuild", "--bundle", "--platform=node", "--format=esm", "--out-extension:.js=.mjs", "--outdir=built", "--log-level=warning"}, tests...)...)
	built, err := filepath.Glob(filepath.Join(dir, "built", "*.mjs"))
	if err != nil {
		t.Fatal(err)
	}
	run(t, dir, append([]string{"node", "--test"}, built...)...)
}

// TestFiles reads all that is in the binary.
func TestFiles(t *testing.T) {
	c, err := load()
	if err != nil {
		t.Fatal(err)
	}
	for name, f := range c.files {
		b, err := f.Content()
		if err != nil || len(b) == 0 || f.Type == "" || f.ETag == "" {
			t.Errorf("%s: %d bytes, type %q, %v", name, len(b), f.Type, err)
		}
	}
	for _, name := range []string{"app.js", "more.js"} {
		b, err := Asset(name).Content()
		if err != nil || !strings.Contains(string(b), "/shared.js?v="+Asset("shared.js").Version) {
			t.Errorf("%s does not name the shared part with its version: %v", name, err)
		}
	}
	page := Page("abc")
	for _, part := range []string{`nonce="abc"`, "/assets/shared.js?v=" + Asset("shared.js").Version, "/assets/app.js?v=" + Version(), "/assets/style.css?v=" + Version()} {
		if !strings.Contains(page, part) {
			t.Errorf("the page lacks %s", part)
		}
	}
	for _, bad := range []string{"VERSION", "NONCE", "<style", "https://", "http://"} {
		if strings.Contains(page, bad) {
			t.Errorf("the page has %s", bad)
		}
	}
	if Asset("../web.go") != nil || Asset("index.html") != nil || Asset("app.js") == nil {
		t.Error("assets are not those of dist")
	}
}
