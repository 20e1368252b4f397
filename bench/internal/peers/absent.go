package peers

import (
	"context"
	"errors"

	"github.com/spool-run/spool/internal/testcache"
)

// envd is the daemon in the sandboxes of E2B.
var envd = Peer{
	Name: "envd", Version: "109424a16f7d", Source: "Go module github.com/e2b-dev/infra/packages/envd",
	Install: module("github.com/e2b-dev/infra/packages/envd", "109424a16f7d"),
}

// daytona is the daemon in the sandboxes of Daytona.
var daytona = Peer{
	Name: "daytona", Version: "v0.190.0", Source: "Go module github.com/daytonaio/daytona/apps/daemon",
	Install: module("github.com/daytonaio/daytona/apps/daemon", "v0.190.0"),
}

// module downloads a Go module from the proxy.
func module(path, version string) func(context.Context) (string, error) {
	return func(ctx context.Context) (string, error) {
		out, err := testcache.Run(ctx, "env", "GOPROXY=https://proxy.golang.org", "go", "mod", "download", path+"@"+version)
		if err == nil {
			err = errors.New("it can be installed, but there is no driver for it yet")
		}
		return out, err
	}
}
