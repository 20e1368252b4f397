package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
)

func (a *app) tokenCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make, list and revoke the tokens of a server that several people share",
		Long: `Token changes the token file of servers on this machine. A server that finds the
file in its state directory, or is started with --tokens, serves only clients with
one of its tokens, except on a unix socket. It notices changes at once.

A token belongs to a subject: runs, sessions, asks and blobs of one subject are
not there for another. Its scopes say what it allows:

  runs:read          list runs, read their events, blobs and changes
  runs:input         standard input, cells, prompts
  runs:start         start runs; runs:start:process only those of that engine
  runs:control       interrupt, signal, resize, stop, kill, restart; apply changes
  runs:delete        delete finished runs, discard changes, rename runs
  asks:answer        answer what runs ask
  files:DIRECTORY    the files below a directory, also to mount them in a sandbox;
                     codex needs files:/
  admin              everything, and the runs of all subjects

Scopes and subjects do not isolate processes: all run under your account, and a
token that may start processes can read all your files.

Exit codes: 0 on success, 1 on failure, 2 on a usage error.`,
		Example: `  spool token create ci --scope runs:start:process,runs:read,runs:input --expires 30d
  spool token list
  spool token revoke ci`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var file string
	cmd.PersistentFlags().StringVar(&file, "tokens", "", "token `file` (default "+access.TokenFileName+" in the state directory)")
	cmd.AddCommand(a.tokenCreateCommand(&file), a.tokenListCommand(&file), a.tokenRevokeCommand(&file))
	return cmd
}

// tokensPath returns the path of the token file.
func (a *app) tokensPath(flag string) (string, error) {
	if flag != "" {
		return filepath.Abs(flag)
	}
	dir, err := a.stateDir()
	return filepath.Join(dir, access.TokenFileName), err
}

// tokenView is a token as it is shown: without its digest, and with its secret
// only when it is made.
type tokenView struct {
	ID      string            `json:"id"`
	Name    string            `json:"name"`
	Subject string            `json:"subject"`
	Scopes  access.Scopes     `json:"scopes"`
	Labels  map[string]string `json:"labels,omitempty"`
	Quotas  *access.Quotas    `json:"quotas,omitempty"`
	Created time.Time         `json:"created"`
	Expires time.Time         `json:"expires,omitzero"`
	Secret  string            `json:"secret,omitempty"`
}

func viewOf(t access.Token) tokenView {
	v := tokenView{ID: t.ID, Name: t.Name, Subject: cmp.Or(t.Subject, t.Name), Scopes: t.Scopes, Labels: t.Labels, Created: t.Created, Expires: t.Expires}
	if t.Quotas != (access.Quotas{}) {
		v.Quotas = &t.Quotas
	}
	return v
}

func (a *app) tokenCreateCommand(file *string) *cobra.Command {
	var (
		t          access.Token
		scopes     []string
		labels     []string
		expires    string
		disk, rate byteCount
		asJSON     bool
	)
	cmd := &cobra.Command{
		Use:   "create NAME [flags]",
		Short: "Make a token and print it",
		Long: `Create makes a token and prints it on stdout. It is not stored and cannot be
printed again: the token file only has its digest.

Without --scope the token allows all that concerns the subject's own runs, except
to delete them: ` + scopeTexts(access.DefaultScopes()) + `.

With --json it prints one JSON object; its "secret" is the token.`,
		Example: `  spool token create alice --expires 30d --max-runs 20
  spool token create codex --scope runs:start,runs:read,runs:input,runs:control,files:/ > codex.token
  spool token create boss --scope admin`,
		Args:              usageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	flags := cmd.Flags()
	flags.StringSliceVar(&scopes, "scope", nil, "`scope` of the token, several times or separated by commas")
	flags.StringVar(&t.Subject, "subject", "", "`name` of the subject, for several tokens of one (default the name of the token)")
	flags.StringArrayVar(&labels, "label", nil, "`label` NAME=VALUE of the runs that the token sees and starts; repeatable")
	flags.StringVar(&expires, "expires", "", "`time` until the token expires, such as 12h or 30d (default never)")
	flags.IntVar(&t.Quotas.Live, "max-runs", 0, "live runs at once")
	flags.IntVar(&t.Quotas.Sandboxes, "max-sandboxes", 0, "live sandboxes at once")
	flags.IntVar(&t.Quotas.StartsPerMinute, "max-starts", 0, "starts per minute")
	flags.Var(&disk, "max-disk", "`bytes` of logs and blobs, such as 64M or 2G")
	flags.Var(&rate, "max-rate", "`bytes` of events and blobs read per second, such as 64M")
	flags.BoolVar(&asJSON, "json", false, "print a JSON object")
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		t.Name, t.Quotas.DiskBytes, t.Quotas.AnswerRate = args[0], int64(disk), int64(rate)
		var err error
		if t.Labels, err = parseLabels(labels); err != nil {
			return err
		}
		for _, text := range scopes {
			scope, err := access.ParseScope(text)
			if err != nil {
				return &usageError{err}
			}
			t.Scopes = append(t.Scopes, scope)
		}
		if expires != "" {
			d, err := parseDays(expires)
			if err != nil {
				return usageErrorf("--expires %q: use a time such as 12h or 30d", expires)
			}
			t.Expires = time.Now().Add(d).UTC().Round(time.Second)
		}
		return a.createToken(*file, t, asJSON)
	}
	return cmd
}

// parseDays parses a duration that may be in days.
func parseDays(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if days, ok := strings.CutSuffix(s, "d"); ok {
		var n int
		n, err = strconv.Atoi(days)
		if n > 36500 {
			err = strconv.ErrRange
		}
		d = time.Duration(n) * 24 * time.Hour
	}
	if err == nil && d <= 0 {
		err = strconv.ErrRange
	}
	return d, err
}

func scopeTexts(scopes access.Scopes) string {
	texts := make([]string, len(scopes))
	for i, s := range scopes {
		texts[i] = string(s)
	}
	return strings.Join(texts, ", ")
}

func (a *app) createToken(file string, t access.Token, asJSON bool) error {
	path, err := a.tokensPath(file)
	if err != nil {
		return err
	}
	t, secret, err := access.CreateToken(path, t)
	if errors.Is(err, spool.ErrInvalid) {
		return &hintedError{err, `"spool token list" shows the names that are taken`}
	}
	if err != nil {
		return err
	}
	if asJSON {
		view := viewOf(t)
		view.Secret = secret
		return json.NewEncoder(a.stdout).Encode(view)
	}
	fmt.Fprintf(a.stderr, "spool: token: keep this token: it is not shown again (%s)\n", scopeTexts(t.Scopes))
	_, err = fmt.Fprintln(a.stdout, secret)
	return err
}

func (a *app) tokenListCommand(file *string) *cobra.Command {
	var asJSON, sessions bool
	cmd := &cobra.Command{
		Use:   "list",
		Short: "List tokens, or the sessions of pages",
		Long: `List shows the tokens of the file, oldest first, without their secrets. With
--sessions it shows the sessions of pages that signed in to "spool serve".

With --json it prints one JSON object per line, one line per token or session.`,
		Example: `  spool token list
  spool token list --sessions`,
		Args:              usageArgs(cobra.NoArgs),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(*cobra.Command, []string) error {
			if sessions {
				return a.listSessions(asJSON)
			}
			return a.listTokens(*file, asJSON)
		},
	}
	cmd.Flags().BoolVar(&sessions, "sessions", false, "list the sessions of pages")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object per line")
	return cmd
}

func (a *app) listTokens(file string, asJSON bool) error {
	path, err := a.tokensPath(file)
	if err != nil {
		return err
	}
	tokens, err := access.ListTokens(path)
	if err != nil {
		return err
	}
	if asJSON {
		enc := json.NewEncoder(a.stdout)
		for _, t := range tokens {
			if err := enc.Encode(viewOf(t)); err != nil {
				return err
			}
		}
		return nil
	}
	w := tabwriter.NewWriter(a.stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "NAME\tSUBJECT\tEXPIRES\tSCOPES")
	for _, t := range tokens {
		expires := "never"
		switch left := time.Until(t.Expires); {
		case t.Expires.IsZero():
		case left <= 0:
			expires = "expired"
		default:
			expires = "in " + formatAge(left)
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\n", plain(t.Name), plain(cmp.Or(t.Subject, t.Name)), expires, plain(scopeTexts(t.Scopes)))
	}
	return w.Flush()
}

func (a *app) tokenRevokeCommand(file *string) *cobra.Command {
	var sessions bool
	cmd := &cobra.Command{
		Use:   "revoke [flags] NAME…",
		Short: "Revoke tokens, or the sessions of pages",
		Long: `Revoke removes tokens, by name or id. Servers close the connections of a revoked
token within a second or two, and pages that signed in with it are signed out. Its runs
go on and stay with the subject.

With --session it ends sessions of pages, by id. A page that signed in as the owner has
no other token.`,
		Example: `  spool token revoke ci
  spool token revoke --session 3fK9x0Ab`,
		Args: usageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: func(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
			var names []string
			if sessions {
				return a.sessionIDs(args), cobra.ShellCompDirectiveNoFileComp
			}
			if path, err := a.tokensPath(*file); err == nil {
				tokens, _ := access.ListTokens(path) // without tokens there is nothing to complete
				for _, t := range tokens {
					if !slices.Contains(args, t.Name) {
						names = append(names, t.Name)
					}
				}
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(_ *cobra.Command, args []string) error {
			if sessions {
				return a.revokeSessions(args)
			}
			path, err := a.tokensPath(*file)
			if err != nil {
				return err
			}
			var errs []error
			for _, name := range args {
				_, err := access.RevokeToken(path, name)
				if errors.Is(err, spool.ErrNotFound) {
					err = &hintedError{err, `"spool token list" shows the tokens`}
				}
				errs = append(errs, err)
			}
			return errors.Join(errs...)
		},
	}
	cmd.Flags().BoolVar(&sessions, "session", false, "revoke sessions of pages instead of tokens")
	return cmd
}
