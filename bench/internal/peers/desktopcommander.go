package peers

import (
	"context"
	"os"
	"path/filepath"

	"github.com/spool-run/spool/internal/npmtest"
	"github.com/spool-run/spool/internal/testcache"
)

// DesktopCommanderVersion is the pinned version of desktop-commander.
const DesktopCommanderVersion = "0.2.52"

// desktopCommanderManifest has one package in a version that the registry has: what
// desktop-commander asks for, indirectly, it has not.
const desktopCommanderManifest = `{"name": "bench", "overrides": {"typedarray.prototype.slice": "1.0.5"}}`

// DesktopCommander installs desktop-commander, an MCP server that runs commands, and
// returns its program for Node. A client starts it, and talks to it over its standard
// input and output.
func DesktopCommander() (string, error) {
	dir, err := testcache.Dir("desktop-commander-" + DesktopCommanderVersion)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, "node_modules", "@wonderwhy-er", "desktop-commander", "dist", "index.js")
	return path, testcache.Install{Fill: func(ctx context.Context, dir string) error {
		if err := os.WriteFile(filepath.Join(dir, "package.json"), []byte(desktopCommanderManifest), 0o600); err != nil {
			return err
		}
		_, err := npmtest.Fetch(ctx, dir, "@wonderwhy-er/desktop-commander@"+DesktopCommanderVersion)
		return err
	}}.Into(dir)
}
