package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool/local"
	"github.com/spool-run/spool/python"
)

func (a *app) boxDoctorCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Check what sandboxes can use on this machine",
		Long: `Doctor checks what the back ends of "spool box" need, which protections separate
the code from this machine, and what is prepared and where. It changes nothing.
It exits with 1 if no back end works.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.boxDoctor(cmd.Context(), asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per finding")
	return cmd
}

func (a *app) boxDoctor(ctx context.Context, asJSON bool) error {
	if url, ok := a.remote(); ok {
		return usageErrorf("cannot check %s: box doctor works only on this machine", url)
	}
	found, err := local.Doctor(ctx)
	if err != nil {
		return err
	}
	for _, f := range found {
		if err := a.printFinding(f, asJSON); err != nil {
			return err
		}
	}
	if !usable(found) {
		return &exitError{exitFailure, errors.New("no sandbox back end works on this machine")}
	}
	return nil
}

// usable reports whether a back end works: the embedded one also works without
// some protections, pyodide needs all of its requirements.
func usable(found []local.Finding) bool {
	embedded, pyodide := false, true
	for i, f := range found {
		switch f.Backend {
		case python.BackendEmbedded:
			embedded = embedded || i == 0 && f.OK
		case python.BackendPyodide:
			pyodide = pyodide && f.OK
		}
	}
	return embedded || pyodide
}

func (a *app) printFinding(f local.Finding, asJSON bool) error {
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
