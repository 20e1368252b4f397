package cli

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
)

// completeIn limits the time of a completion: the user waits for it.
const completeIn = 2 * time.Second

// completeRun completes one run.
func (a *app) completeRun(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, args, prefix, spool.Filter{}, 1)
}

// completeLiveRun completes one run that is not finished.
func (a *app) completeLiveRun(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, args, prefix, spool.Filter{Live: true}, 1)
}

// completeRuns completes any number of runs.
func (a *app) completeRuns(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, args, prefix, spool.Filter{}, 0)
}

// completeLiveRuns completes any number of runs that are not finished.
func (a *app) completeLiveRuns(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, args, prefix, spool.Filter{Live: true}, 0)
}

// complete offers the names and ids of runs, newest first, with the command as
// description. Most is the maximum number of arguments; zero means no maximum.
func (a *app) complete(cmd *cobra.Command, args []string, prefix string, f spool.Filter, most int) ([]string, cobra.ShellCompDirective) {
	if most > 0 && len(args) >= most {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), completeIn)
	defer cancel()
	var offers []string
	seen := slices.Clone(args)
	err := with(a.open, ctx, func(b spool.Backend) error {
		for info, err := range b.List(ctx, f) {
			if err != nil {
				continue // skip a run that cannot be read
			}
			for _, word := range []string{info.Name, shorten(string(info.ID))} {
				if word == "" || !strings.HasPrefix(word, prefix) || slices.Contains(seen, word) {
					continue
				}
				seen = append(seen, word)
				offers = append(offers, word+"\t"+plain(stateText(info)+": "+cut(commandText(info.Argv), 60)))
			}
		}
		return nil
	})
	if err != nil {
		cobra.CompErrorln(err.Error())
	}
	return offers, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}
