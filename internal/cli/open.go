package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
)

func (a *app) openCommand() *cobra.Command {
	var printURL bool
	cmd := &cobra.Command{
		Use:   "open [flags] [RUN]",
		Short: "Open the server of this machine in a browser, signed in",
		Long: `Open has the "spool serve" of this state directory make a one-time code, and opens
a browser at its page with that code, or at the page of a run. The page signs in with
the code, which is valid for ten minutes and once. Nobody copies a token by hand.

With --print it prints the address instead: the browser that opens it first is signed in as you.
Other users of this machine can see the address in the list of processes while a browser
starts; where that matters, print it and paste it.

Exit codes: 0 on success, 1 on failure, 2 on a usage error.`,
		Example: `  spool open
  spool open web
  spool open --print`,
		Args:              usageArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: a.completeRun,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.openPage(cmd.Context(), args, printURL) },
	}
	cmd.Flags().BoolVar(&printURL, "print", false, "print the address instead of opening it")
	return cmd
}

func (a *app) openPage(ctx context.Context, args []string, printURL bool) error {
	if url, ok := a.remote(); ok {
		return usageErrorf("open works with a server of this machine, not with %s: its page takes a token", url)
	}
	dir, err := a.stateDir()
	if err != nil {
		return err
	}
	path := "/"
	if len(args) > 0 {
		err := with(a.open, ctx, func(b spool.Backend) error {
			run, err := spool.Find(ctx, b, args[0])
			if err == nil {
				path = "/runs/" + string(run.ID())
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	at, err := signInURL(ctx, dir)
	if err != nil {
		return &hintedError{err, `start one with "spool serve"`}
	}
	base, code, _ := strings.Cut(at, "/#")
	at = base + path + "#" + code
	if printURL {
		_, err := fmt.Fprintln(a.stdout, at)
		return err
	}
	if err := startBrowser(ctx, at); err != nil {
		return &hintedError{fmt.Errorf("open a browser: %w", err), `"spool open --print" prints the address`}
	}
	fmt.Fprintf(a.stderr, "opened %s\n", base+path)
	return nil
}

var errNoDisplay = errors.New("there is no display, and BROWSER names no program")

// startBrowser opens an address with the browser of the user.
func startBrowser(ctx context.Context, url string) error {
	program := os.Getenv("BROWSER")
	switch {
	case program != "":
	case runtime.GOOS == "darwin":
		program = "open"
	case os.Getenv("DISPLAY") == "" && os.Getenv("WAYLAND_DISPLAY") == "":
		return errNoDisplay
	default:
		program = "xdg-open"
	}
	return exec.CommandContext(ctx, program, url).Run()
}
