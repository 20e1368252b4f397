package cli

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"path/filepath"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/spool-run/spool"
)

// workspaceFlags are the flags that give a run a workspace.
type workspaceFlags struct {
	kind string
	size byteCount
}

// add defines the flags.
func (f *workspaceFlags) add(flags *pflag.FlagSet) {
	flags.StringVar(&f.kind, "workspace", "", "keep the changes of the working directory apart: `kind` overlay, snapshot or auto")
	flags.Var(&f.size, "workspace-size", "`bytes` of disk space for the changes in an overlay, such as 500M (default 4G)")
}

// workspace returns the request, nil if there is none.
func (f *workspaceFlags) workspace() (*spool.Workspace, error) {
	switch f.kind {
	case "":
		if f.size != 0 {
			return nil, usageErrorf("--workspace-size needs --workspace")
		}
		return nil, nil
	case "overlay", "snapshot", "auto":
		return &spool.Workspace{Kind: f.kind, MaxBytes: int64(f.size)}, nil
	}
	return nil, usageErrorf("--workspace %q: use overlay, snapshot or auto", f.kind)
}

// changePages yields the changes of a run page by page.
func changePages(ctx context.Context, w spool.Workspaces, id spool.RunID, patch bool) iter.Seq2[spool.ChangePage, error] {
	return func(yield func(spool.ChangePage, error) bool) {
		q := spool.ChangeQuery{Patch: patch}
		for {
			page, err := w.Changes(ctx, id, q)
			if !yield(page, err) || err != nil || page.More == 0 || len(page.Changes) == 0 {
				return
			}
			last := &page.Changes[len(page.Changes)-1]
			if q.After = last.Path; len(last.Base64) > 0 {
				q.After = string(last.Base64)
			}
		}
	}
}

func workspacesOf(b spool.Backend) (spool.Workspaces, error) {
	w, ok := b.(spool.Workspaces)
	if !ok {
		return nil, fmt.Errorf("workspaces: %w by this backend", spool.ErrUnsupported)
	}
	return w, nil
}

// withWorkspace calls do for the run that a person named.
func (a *app) withWorkspace(ctx context.Context, name string, do func(spool.Workspaces, *spool.Info) error) error {
	return with(a.open, ctx, func(b spool.Backend) error {
		w, err := workspacesOf(b)
		if err != nil {
			return err
		}
		_, info, err := findInfo(ctx, b, name)
		if err != nil {
			return err
		}
		if info.Workspace == nil {
			return &hintedError{fmt.Errorf("%s: the run has no workspace", name), "start a run with --workspace to see what it changes"}
		}
		err = do(w, &info)
		if errors.Is(err, spool.ErrNotFound) { // its changes, and not the run
			err = &hintedError{fmt.Errorf("%s: %w", name, err), ""}
		}
		return err
	})
}

func (a *app) diffCommand() *cobra.Command {
	var patch, asJSON bool
	cmd := &cobra.Command{
		Use:   "diff [flags] RUN",
		Short: "Show what a run changed in its workspace",
		Long: `Diff lists what a run that was started with --workspace has changed and was not
applied: A for added, M for modified and D for deleted, with the permissions if they
differ. --patch prints a unified diff, which git and patch read; files that are no
text, or larger than 4M, are only named. With --server the run is one of the server.`,
		Example: `  spool diff build
  spool diff --patch build
  spool diff --json build | jq -r .path`,
		Args:              usageArgs(cobra.ExactArgs(1)),
		ValidArgsFunction: a.completeRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withWorkspace(cmd.Context(), args[0], func(w spool.Workspaces, info *spool.Info) error {
				for page, err := range changePages(cmd.Context(), w, info.ID, patch) {
					switch {
					case err != nil:
					case patch && !asJSON:
						err = a.printPatch(info, page.Changes)
					default:
						err = a.printChanges(page.Changes, asJSON)
					}
					if err != nil {
						return err
					}
				}
				return nil
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&patch, "patch", "p", false, "print a unified diff")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object per change")
	return cmd
}

func (a *app) applyCommand() *cobra.Command {
	var dry, asJSON bool
	cmd := &cobra.Command{
		Use:   "apply [flags] RUN [PATH…]",
		Short: "Make the changes of a run in its directory",
		Long: `Apply makes what a run changed in its workspace in the directory that the workspace
is of: all changes, or those of the paths and below, as "spool diff" prints them. If
one of these files has changed in the directory since the run began, apply names it
and changes nothing. An apply that is interrupted is completed or undone by the next
command about the workspace.

With --server the directory is one of the server's machine: the changes are made there,
and no file is copied to this one.`,
		Example: `  spool apply build
  spool apply --dry-run build
  spool apply build src/main.go docs`,
		Args:              usageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.completeFinishedRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.withWorkspace(cmd.Context(), args[0], func(w spool.Workspaces, info *spool.Info) error {
				return a.apply(cmd.Context(), w, info, args[1:], dry, asJSON)
			})
		},
	}
	flags := cmd.Flags()
	flags.BoolVarP(&dry, "dry-run", "n", false, "only print what would be changed")
	flags.BoolVar(&asJSON, "json", false, "print one JSON object per change")
	return cmd
}

func (a *app) apply(ctx context.Context, w spool.Workspaces, info *spool.Info, paths []string, dry, asJSON bool) error {
	page, err := w.Apply(ctx, info.ID, paths, dry)
	if err != nil && !errors.Is(err, spool.ErrExists) {
		return err
	}
	if info.Workspace != nil && info.Workspace.Kind == "snapshot" && !asJSON {
		fmt.Fprintf(a.stderr, "spool: nothing to apply: the run wrote to %s itself\n", plain(info.Workspace.Base))
		return nil
	}
	if printErr := a.printChanges(page.Changes, asJSON); printErr != nil {
		return errors.Join(err, printErr)
	}
	if page.More > 0 {
		fmt.Fprintf(a.stderr, "spool: and %s\n", count(page.More, "more change", "more changes"))
	}
	if err != nil {
		return &hintedError{err, "nothing was changed; apply the other paths, and these by hand after \"spool diff --patch\""}
	}
	return nil
}

func (a *app) discardCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "discard [flags] RUN…",
		Short: "Delete what runs changed in their workspaces",
		Long: `Discard deletes the changes of runs in their workspaces. Their logs stay. The changes
of a run with a snapshot are in its directory itself: discard refuses to delete them.`,
		Example:           "  spool discard build",
		Args:              usageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.completeFinishedRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			var errs []error
			for _, name := range args {
				errs = append(errs, a.withWorkspace(cmd.Context(), name, func(w spool.Workspaces, info *spool.Info) error {
					return w.Discard(cmd.Context(), info.ID)
				}))
			}
			return errors.Join(errs...)
		},
	}
}

// printChanges prints changes, one per line.
func (a *app) printChanges(changes []spool.Change, asJSON bool) error {
	var out strings.Builder
	for i := range changes {
		c := &changes[i]
		if asJSON {
			if err := a.printJSON(c); err != nil {
				return err
			}
			continue
		}
		out.WriteString(changeLine(c))
		out.WriteByte('\n')
	}
	_, err := a.stdout.WriteString(out.String())
	return err
}

// changeLine is a change as one line.
func changeLine(c *spool.Change) string {
	line := strings.ToUpper(c.Op[:min(1, len(c.Op))]) + " " + shownPath(c)
	if c.Op == "modified" && c.OldMode != c.Mode && c.OldMode != "" && c.Mode != "" {
		line += " (mode " + c.OldMode + " -> " + c.Mode + ")"
	}
	if c.OldType != "" {
		line += " (" + c.OldType + " -> " + c.Type + ")"
	}
	if c.Conflict != "" {
		line += ": conflict: " + c.Conflict
	}
	return line
}

// shownPath is a path with its control characters and bytes that are no text shown,
// and a / after directories.
func shownPath(c *spool.Change) string {
	path := c.Path
	if !utf8.ValidString(path) || plain(path) != path || strings.ContainsAny(path, "\"\\\n") {
		path = fmt.Sprintf("%+q", path)
	}
	if c.Type == "directory" && path != "." {
		path += "/"
	}
	return path
}

// printPatch prints the differences of all changes.
func (a *app) printPatch(info *spool.Info, changes []spool.Change) error {
	if info.Workspace != nil && info.Workspace.Kind == "snapshot" && len(changes) > 0 {
		return &hintedError{errors.New("a snapshot does not keep the files as they were before the run"), "without --patch the changed files are listed"}
	}
	out := a.screen(a.stdout)
	for i := range changes {
		if _, err := out.Write([]byte(changes[i].Patch)); err != nil {
			return err
		}
	}
	return nil
}

// mentionChanges says which runs that are to be deleted have changes that were neither
// applied nor discarded.
func (a *app) mentionChanges(ctx context.Context, b spool.Backend, ids []spool.RunID) {
	w, ok := b.(spool.Workspaces)
	if !ok {
		return
	}
	for _, id := range ids {
		info, err := b.Stat(ctx, id)
		if err != nil || info.Workspace == nil || info.Workspace.Kind != "overlay" {
			continue
		}
		page, err := w.Changes(ctx, id, spool.ChangeQuery{})
		if n := len(page.Changes) + page.More; err == nil && n > 0 {
			fmt.Fprintf(a.stderr, "spool: run %s has %s that %s neither applied nor discarded; see \"spool diff %[1]s\"\n",
				id, count(n, "change", "changes"), map[bool]string{true: "was", false: "were"}[n == 1])
		}
	}
}

// completeFinishedRun completes one run that is finished, and then paths.
func (a *app) completeFinishedRun(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) == 0 {
		return a.complete(cmd, args, prefix, spool.Filter{State: spool.StateClosed}, 1)
	}
	var paths []string
	_ = a.configure(cmd) // an error means that there is nothing to offer
	_ = a.withWorkspace(cmd.Context(), args[0], func(w spool.Workspaces, info *spool.Info) error {
		page, err := w.Changes(cmd.Context(), info.ID, spool.ChangeQuery{})
		for _, c := range page.Changes {
			if strings.HasPrefix(c.Path, prefix) && utf8.ValidString(c.Path) {
				paths = append(paths, filepath.ToSlash(c.Path))
			}
		}
		return err
	})
	return paths, cobra.ShellCompDirectiveNoFileComp
}
