package codextest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// Version is the pinned version of codex.
const Version = "0.166.0"

// installTimeout bounds one npm install, which takes seconds.
const installTimeout = 5 * time.Minute

// Binary returns the path of the native codex binary, installing it into the
// user's cache directory the first time. It fails the test if it cannot.
func Binary(tb testing.TB) string {
	tb.Helper()
	cache, err := os.UserCacheDir()
	if err != nil {
		tb.Fatalf("find cache directory for codex: %v", err)
	}
	path, err := Install(filepath.Join(cache, "spool-test", "codex-"+Version))
	if err != nil {
		tb.Fatal(err)
	}
	return path
}

// Install makes sure that the pinned codex is installed in dir and returns
// the path of its native binary. Processes that install into the same
// directory at once wait for each other. A directory without a complete
// install is replaced.
func Install(dir string) (string, error) {
	bin, err := nativePath(dir)
	if err != nil {
		return "", err
	}
	if isExecutable(bin) {
		return bin, nil
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return "", fmt.Errorf("install codex: %w", err)
	}
	unlock, err := lockFile(dir + ".lock")
	if err != nil {
		return "", fmt.Errorf("install codex: %w", err)
	}
	defer unlock()
	if isExecutable(bin) { // another process was faster
		return bin, nil
	}
	if err := npmInstall(dir); err != nil {
		return "", fmt.Errorf("install codex: %w", err)
	}
	return bin, nil
}

// npmInstall installs beside dir and renames, so that dir is never half an
// install.
func npmInstall(dir string) error {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return fmt.Errorf("npm is needed to fetch @openai/codex@%s: %w", Version, err)
	}
	tmp, err := os.MkdirTemp(filepath.Dir(dir), filepath.Base(dir)+".tmp-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)

	ctx, cancel := context.WithTimeout(context.Background(), installTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "install", "--prefix", tmp,
		"--no-save", "--no-audit", "--no-fund", "--ignore-scripts", "--loglevel=error",
		"@openai/codex@"+Version)
	cmd.WaitDelay = time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	if err != nil {
		return fmt.Errorf("npm install @openai/codex@%s: %w\n%s", Version, err, out)
	}
	// The native part is an optional dependency: npm succeeds without it.
	bin, err := nativePath(tmp)
	if err != nil {
		return err
	}
	if !isExecutable(bin) {
		return fmt.Errorf("npm installed @openai/codex@%s without its native binary for %s\n%s", Version, runtime.GOARCH, out)
	}
	if err := os.RemoveAll(dir); err != nil {
		return err
	}
	return os.Rename(tmp, dir)
}

// nativePath returns where npm puts the native binary below dir.
func nativePath(dir string) (string, error) {
	var pkg, triple string
	switch runtime.GOOS + "/" + runtime.GOARCH {
	case "linux/amd64":
		pkg, triple = "codex-linux-x64", "x86_64-unknown-linux-musl"
	case "linux/arm64":
		pkg, triple = "codex-linux-arm64", "aarch64-unknown-linux-musl"
	default:
		return "", fmt.Errorf("install codex: no binary for %s/%s", runtime.GOOS, runtime.GOARCH)
	}
	return filepath.Join(dir, "node_modules", "@openai", pkg, "vendor", triple, "bin", "codex"), nil
}

func isExecutable(path string) bool {
	fi, err := os.Stat(path)
	return err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0
}

// lockFile takes an exclusive lock on a file, creating it if needed. The lock
// also ends with the process. The file stays: removing it would let two
// processes lock different files of one name.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
		if !errors.Is(err, syscall.EINTR) {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return func() { f.Close() }, nil
}
