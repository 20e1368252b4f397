package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
)

// shareView is a share as it is shown: without its digest, and with its address only
// when it is made.
type shareView struct {
	ID       string        `json:"id"`
	Run      spool.RunID   `json:"run"`
	Scopes   access.Scopes `json:"scopes"`
	By       string        `json:"by"`
	Created  time.Time     `json:"created"`
	Expires  time.Time     `json:"expires"`
	LastUsed time.Time     `json:"last_used,omitzero"`
	URL      string        `json:"url,omitempty"`
}

func shareViewOf(t *access.Token) shareView {
	by := access.Subject{Name: t.By}
	v := shareView{ID: t.ID, Scopes: t.Scopes, By: by.String(), Created: t.Created, Expires: t.Expires, LastUsed: t.LastUsed}
	if len(t.Runs) > 0 {
		v.Run = t.Runs[0]
	}
	return v
}

func (a *app) shareCommand() *cobra.Command {
	var (
		scopes  []string
		expires string
		asJSON  bool
	)
	cmd := &cobra.Command{
		Use:   "share [flags] RUN",
		Short: "Make an address with which others see one run",
		Long: `Share makes an address at the "spool serve" of this state directory and prints it.
Everybody who has it sees that one run and nothing else, until the share expires or is revoked.
The address is not stored and cannot be printed again.

By default others may only read. --scope runs:input lets them type, asks:answer lets them
answer what the run asks, and runs:control lets them stop it.

Exit codes: 0 on success, 1 on failure, 2 on a usage error.`,
		Example: `  spool share web
  spool share web --expires 7d --scope asks:answer
  spool share list
  spool share revoke 3fK9x0Ab`,
		Args:              usageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeRun,
	}
	cmd.Flags().StringSliceVar(&scopes, "scope", nil, "`scope` beside runs:read, several times or separated by commas: "+scopeTexts(access.ShareScopes()[1:]))
	cmd.Flags().StringVar(&expires, "expires", "24h", "`time` until the share expires, such as 12h or 30d")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print a JSON object")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		d, err := parseDays(expires)
		if err != nil {
			return usageErrorf("--expires %q: use a time such as 12h or 30d", expires)
		}
		s := access.Share{Expires: time.Now().Add(d)}
		for _, text := range scopes {
			scope, err := access.ParseScope(text)
			if err != nil {
				return &usageError{err}
			}
			s.Scopes = append(s.Scopes, scope)
		}
		return a.share(cmd.Context(), args[0], s, asJSON)
	}
	cmd.AddCommand(a.shareListCommand(), a.shareRevokeCommand())
	return cmd
}

// sharesPath returns the path of the file of shares.
func (a *app) sharesPath() (string, error) {
	if url, ok := a.remote(); ok {
		return "", usageErrorf("share works with a server of this machine, not with %s: use POST /v1/runs/RUN/shares there", url)
	}
	dir, err := a.stateDir()
	return filepath.Join(dir, access.ShareFileName), err
}

func (a *app) share(ctx context.Context, name string, s access.Share, asJSON bool) error {
	path, err := a.sharesPath()
	if err != nil {
		return err
	}
	base, err := serverURL(ctx, filepath.Dir(path))
	if err != nil {
		return &hintedError{err, `start one with "spool serve"`}
	}
	err = with(a.open, ctx, func(b spool.Backend) error {
		_, s.Run, err = findInfo(ctx, b, name)
		return err
	})
	if err != nil {
		return err
	}
	t, secret, err := access.CreateShare(path, access.Owner(), s)
	if errors.Is(err, spool.ErrInvalid) {
		return &usageError{err}
	}
	if err != nil {
		return err
	}
	at := base + "/runs/" + string(s.Run.ID) + "#s=" + secret
	if asJSON {
		view := shareViewOf(&t)
		view.URL = at
		return json.NewEncoder(a.stdout).Encode(view)
	}
	fmt.Fprintf(a.stderr, "spool: share: everyone with this address sees run %s for %s (%s); end it with: spool share revoke %s\n",
		s.Run.ID, formatAge(time.Until(t.Expires)), scopeTexts(t.Scopes), t.ID)
	_, err = fmt.Fprintln(a.stdout, at)
	return err
}

// serverURL returns the address of a server of the state directory for browsers.
func serverURL(ctx context.Context, dir string) (string, error) {
	for _, socket := range controlSockets(dir) {
		var status serveStatus
		err := askServer(ctx, socket, http.MethodGet, "/status", &status)
		if isGone(err) {
			_ = os.Remove(socket) // its server died
		}
		if err == nil && status.URL != "" {
			return status.URL, nil
		}
	}
	return "", errNoServer
}

func (a *app) shareListCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "list [flags] [RUN]",
		Short: "List shares",
		Long: `List shows the shares of a run, or of all runs, without their addresses. The shares
that subjects made over HTTP are among them.

With --json it prints one JSON object per line, one line per share.`,
		Example:           `  spool share list`,
		Args:              usageArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: a.completeRun,
		RunE:              func(cmd *cobra.Command, args []string) error { return a.listShares(cmd.Context(), args, asJSON) },
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line")
	return cmd
}

func (a *app) listShares(ctx context.Context, args []string, asJSON bool) error {
	path, err := a.sharesPath()
	if err != nil {
		return err
	}
	shares, err := access.ListShares(path)
	if err != nil {
		return err
	}
	if len(args) > 0 {
		err := with(a.open, ctx, func(b spool.Backend) error {
			run, err := spool.Find(ctx, b, args[0])
			if err == nil {
				shares = slices.DeleteFunc(shares, func(t access.Token) bool { return !slices.Contains(t.Runs, run.ID()) })
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	enc := json.NewEncoder(a.stdout)
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	if !asJSON {
		fmt.Fprintln(w, "ID\tRUN\tBY\tUSED\tEXPIRES\tSCOPES")
	}
	for i := range shares {
		v := shareViewOf(&shares[i])
		if asJSON {
			if err := enc.Encode(v); err != nil {
				return err
			}
			continue
		}
		used := "never"
		if !v.LastUsed.IsZero() {
			used = formatAge(time.Since(v.LastUsed)) + " ago"
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\tin %s\t%s\n", plain(v.ID), plain(string(v.Run)), plain(v.By), used, formatAge(time.Until(v.Expires)), plain(scopeTexts(v.Scopes)))
	}
	return w.Flush()
}

func (a *app) shareRevokeCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "revoke [flags] ID…",
		Short:             "End shares",
		Long:              `Revoke ends shares, by id. Readers who use one are cut off within a second or two.`,
		Example:           `  spool share revoke 3fK9x0Ab`,
		Args:              usageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(_ *cobra.Command, args []string) error {
			path, err := a.sharesPath()
			if err != nil {
				return err
			}
			var errs []error
			for _, id := range args {
				_, err := access.RevokeTokenID(path, id)
				if errors.Is(err, spool.ErrNotFound) {
					err = &hintedError{err, `"spool share list" shows the shares`}
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		},
	}
}
