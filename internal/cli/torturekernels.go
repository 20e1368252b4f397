package cli

import (
	"context"
	"encoding/json"
	"io"

	"github.com/spool-run/spool/internal/torture"
)

// tortureUpkeep tests the state directory instead of a server.
func (a *app) tortureUpkeep(ctx context.Context, o torture.UpkeepOptions, asJSON bool) error {
	report, err := torture.Upkeep(ctx, o)
	if err != nil {
		return err
	}
	return a.tortureReport(report, asJSON)
}

// soakKernels tests kernels instead of processes.
func (a *app) soakKernels(ctx context.Context, o torture.SoakOptions, asJSON bool) error {
	report, err := torture.SoakKernels(ctx, o)
	if err != nil {
		return err
	}
	return a.tortureReport(report, asJSON)
}

// tortureReport prints what a test found. It fails if that is a fault.
func (a *app) tortureReport(report interface {
	WriteTable(w io.Writer) error
	Failed() bool
}, asJSON bool) (err error) {
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
