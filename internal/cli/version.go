package cli

import (
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool/internal/wire/runproto"
)

// release is set by the linker in released binaries.
var release string

// versionInfo is the output of spool version.
type versionInfo struct {
	Version  string `json:"version"`
	Commit   string `json:"commit,omitempty"`
	Date     string `json:"date,omitempty"` // of the commit, RFC 3339
	Modified bool   `json:"modified,omitempty"`
	Go       string `json:"go"`
	Platform string `json:"platform"`
	Protocol string `json:"protocol"` // between spool and its servers
}

// version describes this binary.
var version = sync.OnceValue(func() versionInfo {
	v := versionInfo{
		Version: release, Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH, Protocol: runproto.Subprotocol,
	}
	build, ok := debug.ReadBuildInfo()
	if ok {
		for _, s := range build.Settings {
			switch s.Key {
			case "vcs.revision":
				v.Commit = s.Value
			case "vcs.time":
				v.Date = s.Value
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
	if v.Commit == "" {
		v.Commit, v.Date = pseudoCommit(v.Version)
	}
	return v
})

// pseudoCommit returns the commit, shortened, and its date, which "go install" puts
// into the version of a module without a tag: v0.0.0-20261116005315-e8ad25839a1f.
func pseudoCommit(version string) (commit, date string) {
	version, _, _ = strings.Cut(version, "+")
	i := strings.LastIndexByte(version, '-')
	if i < 14 || len(version)-i-1 != 12 {
		return "", ""
	}
	t, err := time.Parse("20060102150405", version[i-14:i])
	if err != nil {
		return "", ""
	}
	return version[i+1:], t.Format(time.RFC3339)
}

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Long: `Version prints the version of spool, the commit it was built from and its date, the
Go version and the platform. With --json it also prints the protocol that spool
speaks with servers.`,
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
	var parts []string
	if v.Commit != "" {
		commit := "commit " + v.Commit[:min(len(v.Commit), 12)]
		if v.Modified {
			commit += " with changes"
		}
		parts = append(parts, commit)
	}
	if day, _, ok := strings.Cut(v.Date, "T"); ok {
		parts = append(parts, day)
	}
	parts = append(parts, v.Go, v.Platform)
	_, err := fmt.Fprintf(a.stdout, "spool %s (%s)\n", v.Version, strings.Join(parts, ", "))
	return err
}
