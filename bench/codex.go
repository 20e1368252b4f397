package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spool-run/spool/internal/codextest"
)

// findCodex returns the reference to compare with and its version. Without a
// path it is the one that the tests use, installed if it is not yet.
func findCodex(ctx context.Context, path string) (found, version string, err error) {
	if path == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", "", fmt.Errorf("find codex: %w", err)
		}
		if path, err = codextest.Install(filepath.Join(cache, "spool-test", "codex-"+codextest.Version)); err != nil {
			return "", "", err
		}
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", "", fmt.Errorf("find codex: %w", err)
	}
	return path, strings.TrimSpace(string(out)), nil
}
