package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"

	"github.com/spf13/cobra"
)

// release is set by the linker in released binaries.
var release string

// versionInfo is the output of spool version.
type versionInfo struct {
	Version  string `json:"version"`
	Revision string `json:"revision,omitempty"`
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

// version describes this binary.
var version = sync.OnceValue(func() versionInfo {
	v := versionInfo{Version: release, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	build, ok := debug.ReadBuildInfo()
	if ok {
		for _, s := range build.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Revision = s.Value
			case "vcs.modified":
				v.Modified = s.Value == "true"
			}
		}
	}
	if v.Version == "" && ok && build.Main.Version != "(devel)" {
		v.Version = build.Main.Version
	}
	if v.Version == "" {
		v.Version = "devel"
	}
	return v
})

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Long:    "Version prints the version of spool, the Go version and the platform.",
		Example: "  spool version\n  spool version --json",
		Args:    usageArgs(cobra.NoArgs),
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return json.NewEncoder(a.stdout).Encode(version())
			}
			return a.printVersion()
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return cmd
}

// printVersion prints the version for a person.
func (a *app) printVersion() error {
	v := version()
	_, err := fmt.Fprintf(a.stdout, "spool %s (%s, %s)\n", v.Version, v.Go, v.Platform)
	return err
}
