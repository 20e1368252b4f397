package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"

	"github.com/spool-run/spool/internal/codextest"
)

// findCodex returns the reference codex and its version. Without a path it
// installs the version that the tests use, unless it is installed.
func findCodex(ctx context.Context, path string) (found, version string, err error) {
	if path == "" {
		if path, err = codextest.Install(); err != nil {
			return "", "", err
		}
	}
	out, err := exec.CommandContext(ctx, path, "--version").Output()
	if err != nil {
		return "", "", fmt.Errorf("find codex: %w", err)
	}
	return path, strings.TrimSpace(string(out)), nil
}
