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

// completeFinishedRuns completes any number of runs that are finished.
func (a *app) completeFinishedRuns(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return a.complete(cmd, args, prefix, spool.Filter{State: spool.StateClosed}, 0)
}

// complete offers the names and ids of runs, newest first, with the command as
// description. Most is the maximum number of arguments; zero means no maximum.
func (a *app) complete(cmd *cobra.Command, args []string, prefix string, f spool.Filter, most int) ([]string, cobra.ShellCompDirective) {
	if most > 0 && len(args) >= most {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var offers []string
	seen := make(map[string]bool)
	for _, arg := range args {
		seen[arg] = true
	}
	a.eachRun(cmd, f, func(info spool.Info) {
		for _, word := range []string{info.Name, shorten(string(info.ID))} {
			if word == "" || !strings.HasPrefix(word, prefix) || seen[word] {
				continue
			}
			seen[word] = true
			offers = append(offers, word+"\t"+plain(stateText(info)+": "+cut(commandColumn(info), 60)))
		}
	})
	return offers, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// eachRun calls f for every run that a filter selects, for a completion.
func (a *app) eachRun(cmd *cobra.Command, f spool.Filter, do func(spool.Info)) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeIn)
	defer cancel()
	err := a.configure(cmd)
	if err != nil {
		cobra.CompErrorln(err.Error())
		return
	}
	err = with(a.open, ctx, func(b spool.Backend) error {
		for info, err := range b.List(ctx, f) {
			if err == nil { // skip a run that cannot be read
				do(info)
			}
		}
		return nil
	})
	if err != nil {
		cobra.CompErrorln(err.Error())
	}
}

// completeWords completes the value of a flag, which may be a list with commas.
func completeWords(cmd *cobra.Command, flag string, words []string) {
	err := cmd.RegisterFlagCompletionFunc(flag, func(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		done := ""
		if i := strings.LastIndexByte(prefix, ','); i >= 0 {
			done, prefix = prefix[:i+1], prefix[i+1:]
		}
		var offers []string
		for _, w := range words {
			if strings.HasPrefix(w, prefix) && !slices.Contains(strings.Split(done, ","), w) {
				offers = append(offers, done+w)
			}
		}
		return offers, cobra.ShellCompDirectiveNoFileComp
	})
	if err != nil { // there is no such flag
		panic(err)
	}
}
