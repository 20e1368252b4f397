package cli

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// completeIn limits the time of a completion: the user waits for it.
const completeIn = 10 * time.Second

// completeRecent is how many of the newest runs a completion looks at. Of older
// ones it offers the ids that begin with what was typed.
const completeRecent = 1000

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
	offer := func(info spool.Info) {
		for _, word := range []string{info.Name, shorten(string(info.ID))} {
			if word == "" || !strings.HasPrefix(word, prefix) || seen[word] {
				continue
			}
			seen[word] = true
			offers = append(offers, word+"\t"+plain(stateText(info)+": "+cut(commandColumn(info), 60)))
		}
	}
	a.eachRun(cmd, f, offer)
	if spool.RunID(prefix).Check() == nil {
		f.Prefix = spool.RunID(prefix)
		a.eachRun(cmd, f, offer)
	}
	return offers, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveKeepOrder
}

// eachRun calls f for the newest runs that a filter selects, for a completion.
func (a *app) eachRun(cmd *cobra.Command, f spool.Filter, do func(spool.Info)) {
	ctx, cancel := context.WithTimeout(cmd.Context(), completeIn)
	defer cancel()
	f.Limit = completeRecent
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
	if err := cmd.RegisterFlagCompletionFunc(flag, wordCompletion(words)); err != nil { // there is no such flag
		panic(err)
	}
}

// wordCompletion completes one of some words, or a list of them with commas.
func wordCompletion(words []string) cobra.CompletionFunc {
	return func(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
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
	}
}

// flagWords are the values of flags that have few of them.
var flagWords = map[string][]string{
	"output-policy":         {"truncate", "block", "stop"},
	"default-output-policy": {"truncate", "block", "stop"},
	"hangup":                {hangupKeep, hangupStop},
	"on-hangup":             {hangupKeep, hangupStop},
	"env-from":              {envUsual, envAll},
	"asks":                  {asksTerminal, asksWait, asksDeny},
	"view":                  {viewSpool, viewTakopi},
	"mode":                  {"auto", "exec", "duplex"},
	"backend":               {"auto", "embedded", "pyodide"},
	"fsync":                 {"none", "interval", "always"},
	"log-level":             {"debug", "info", "warn", "error"},
	"on-exit":               {"end", "keep"},
	"ws-auth":               {"capability-token", "signed-bearer-token"},
	"turn":                  {"last"},
	"workspace":             {"overlay", "snapshot", "auto"},
}

// directoryFlags are the flags that name a directory of this machine.
var directoryFlags = []string{"cwd", "workdir", "state", "images", "dist", "wheels"}

// completeFlags completes the values of the flags of all verbs.
func (a *app) completeFlags(root *cobra.Command) {
	for _, cmd := range append(root.Commands(), root) {
		set := func(flag string, complete cobra.CompletionFunc) {
			if cmd.Flags().Lookup(flag) != nil || cmd.PersistentFlags().Lookup(flag) != nil {
				// An error means that the verb completes the flag itself.
				_ = cmd.RegisterFlagCompletionFunc(flag, complete)
			}
		}
		for flag, words := range flagWords {
			set(flag, wordCompletion(words))
		}
		for _, flag := range directoryFlags {
			set(flag, func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
				return nil, cobra.ShellCompDirectiveFilterDirs
			})
		}
		set("label", a.completeLabel)
		set("name", a.completeName(spool.Filter{}))
		set("session", a.completeName(spool.Filter{Live: true, Engine: python.EngineKernel}))
	}
}

// completeLabel completes a label that runs have.
func (a *app) completeLabel(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	labels := make(map[string]bool)
	a.eachRun(cmd, spool.Filter{}, func(info spool.Info) {
		for name, value := range info.Labels {
			if label := name + "=" + value; strings.HasPrefix(label, prefix) && !strings.HasPrefix(name, reservedLabels) {
				labels[label] = true
			}
		}
	})
	return slices.Sorted(maps.Keys(labels)), cobra.ShellCompDirectiveNoFileComp
}

// reservedLabels begin the names of labels that spool sets itself.
const reservedLabels = "spool."

// completeName completes a name that runs have.
func (a *app) completeName(f spool.Filter) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		names := make(map[string]bool)
		a.eachRun(cmd, f, func(info spool.Info) {
			if info.Name != "" && strings.HasPrefix(info.Name, prefix) {
				names[info.Name] = true
			}
		})
		return slices.Sorted(maps.Keys(names)), cobra.ShellCompDirectiveNoFileComp
	}
}
