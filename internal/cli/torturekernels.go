package cli

import (
	"context"
	"encoding/json"

	"github.com/spool-run/spool/internal/torture"
)

// tortureUpkeep tests the state directory instead of a server.
func (a *app) tortureUpkeep(ctx context.Context, o torture.UpkeepOptions, asJSON bool) error {
	report, err := torture.Upkeep(ctx, o)
	if err != nil {
		return err
	}
	if asJSON {
		err = json.NewEncoder(a.stdout).Encode(report)
	} else {
		err = report.WriteTable(a.stdout)
	}
	if err == nil && report.Failed() {
		return exit(exitFailure)
	}
	return err
}

// soakKernels tests kernels instead of processes.
func (a *app) soakKernels(ctx context.Context, o torture.SoakOptions, asJSON bool) error {
	report, err := torture.SoakKernels(ctx, o)
	if err != nil {
		return err
	}
	if asJSON {
		err = json.NewEncoder(a.stdout).Encode(report)
	} else {
		err = report.WriteTable(a.stdout)
	}
	if err == nil && report.Failed() {
		return exit(exitFailure)
	}
	return err
}
