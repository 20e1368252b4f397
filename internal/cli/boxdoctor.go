package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/python"
)

func (a *app) boxDoctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this machine can do for sandboxes",
		Long: `Doctor looks at what the back ends of "spool box" need, what would stand between
code and this machine, and what was prepared, and says where. It changes
nothing. It exits with 1 if no back end can be used.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.boxDoctor(cmd.Context(), asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per finding")
	return cmd
}

// finding is one line of the doctor's.
type finding struct {
	Backend string `json:"backend"`
	guest.Finding
}

func (a *app) boxDoctor(ctx context.Context, asJSON bool) error {
	if url, ok := a.remote(); ok {
		return usageErrorf("doctor looks at this machine, not at %s", url)
	}
	usable := false
	backends := sandboxBackends()
	for _, name := range []string{python.BackendEmbedded, python.BackendPyodide} {
		b, err := backends[name]()
		if err != nil {
			return err
		}
		found := b.Doctor(ctx)
		if err := b.Close(); err != nil {
			return err
		}
		ok := true
		for _, f := range found {
			ok = ok && f.OK
			if err := a.printFinding(finding{name, f}, asJSON); err != nil {
				return err
			}
		}
		usable = usable || ok || name == python.BackendEmbedded && len(found) > 0 && found[0].OK
	}
	if !usable {
		return &exitError{exitFailure, errors.New("no back end can be used here")}
	}
	return nil
}

func (a *app) printFinding(f finding, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(a.stdout).Encode(f)
	}
	mark := "ok"
	if !f.OK {
		mark = "--"
	}
	_, err := fmt.Fprintf(a.stdout, "%-9s %-2s %-13s %s\n", f.Backend, mark, f.Name, f.Text)
	return err
}
