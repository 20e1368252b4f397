package cli

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/python"
)

// filterKeys are what runs can be selected by.
var filterKeys = []string{"state", "label", "engine", "name", "id", "status"}

// filterHelp describes the values of --filter.
const filterHelp = "only runs that match these `key=value` pairs: state, label, engine, name, id, status"

// parseFilters parses the values of --filter: key=value pairs, separated by
// commas. It returns a filter for the backend and a function for the rest, or nil if
// the filter says all. All pairs must match. Values of name, id and status may have *
// and ?.
func parseFilters(texts []string) (spool.Filter, func(*spool.Info) bool, error) {
	f := spool.Filter{}
	type glob struct{ key, pattern string }
	var globs []glob
	for _, text := range texts {
		for pair := range strings.SplitSeq(text, ",") {
			key, value, ok := strings.Cut(strings.TrimSpace(pair), "=")
			if !ok || key == "" {
				return f, nil, usageErrorf("--filter %q: use key=value, with the keys %s", pair, strings.Join(filterKeys, ", "))
			}
			switch key {
			case "state":
				switch value {
				case "live":
					f.Live = true
				case "waiting":
					f.Waiting = true
				case "finished":
					f.State = spool.StateClosed
				default:
					f.State = spool.State(value)
				}
				if err := f.Check(); err != nil {
					return f, nil, usageErrorf("--filter: unknown state %q: use queued, running, exited, closed, live, finished or waiting", value)
				}
			case "engine":
				if err := checkEngine(value); err != nil {
					return f, nil, err
				}
				f.Engine = value
			case "label":
				name, want, hasValue := strings.Cut(value, "=")
				if !hasValue {
					f.HasLabels = append(f.HasLabels, name)
					continue
				}
				if f.Labels == nil {
					f.Labels = make(map[string]string)
				}
				f.Labels[name] = want
			case "name", "id", "status":
				if _, err := path.Match(value, ""); err != nil {
					return f, nil, usageErrorf("--filter %q: the pattern has an open bracket", pair)
				}
				if key == "name" && !strings.ContainsAny(value, `*?[\`) {
					f.Name = value
					continue
				}
				if key == "name" && f.NameGlob == "" {
					f.NameGlob = value
					continue
				}
				if key == "id" && f.Prefix == "" && spool.RunID(value).Check() == nil {
					f.Prefix = spool.RunID(value)
					continue
				}
				if begin, _, _ := strings.Cut(value, "*"); key == "id" && f.Prefix == "" && spool.RunID(begin).Check() == nil {
					f.Prefix = spool.RunID(begin) // which the index finds
				}
				globs = append(globs, glob{key, value})
			default:
				err := fmt.Errorf("--filter: unknown key %q: use %s", key, strings.Join(filterKeys, ", "))
				return f, nil, &usageError{err}
			}
		}
	}
	if len(globs) == 0 {
		return f, nil, nil
	}
	match := func(info *spool.Info) bool {
		for _, g := range globs {
			text := map[string]string{"name": info.Name, "id": string(info.ID), "status": stateText(*info)}[g.key]
			ok, _ := path.Match(g.pattern, text)
			if !ok && !(g.key == "id" && strings.HasPrefix(text, g.pattern)) && !(g.key == "status" && strings.HasPrefix(text, g.pattern)) {
				return false
			}
		}
		return true
	}
	return f, match, nil
}

// engineNames are the engines whose runs can be selected.
var engineNames = []string{spool.EngineProcess, python.EngineKernel, python.EngineSandbox, agent.Engine, access.AuditEngine}

// checkEngine refuses the name of an engine that does not exist, which would select no run.
func checkEngine(name string) error {
	if slices.Contains(engineNames, name) {
		return nil
	}
	err := usageErrorf("unknown engine %q: use %s", name, strings.Join(engineNames, ", "))
	if near := nearest(name, engineNames); near != "" {
		return &hintedError{err, fmt.Sprintf("did you mean %s?", near)}
	}
	return err
}

// completeFilter completes the values of --filter of a command.
func (a *app) completeFilter(cmd *cobra.Command) {
	complete := func(cmd *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
		done, pair := "", prefix
		if i := strings.LastIndexByte(prefix, ','); i >= 0 {
			done, pair = prefix[:i+1], prefix[i+1:]
		}
		key, _, hasValue := strings.Cut(pair, "=")
		var offers []string
		const directive = cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
		if !hasValue {
			for _, k := range filterKeys {
				if strings.HasPrefix(k, key) {
					offers = append(offers, done+k+"=")
				}
			}
			return offers, directive
		}
		values := map[string]bool{}
		switch key {
		case "state":
			for _, s := range []string{"running", "exited", "closed", "live", "finished", "waiting"} {
				values[s] = true
			}
		case "engine":
			for _, name := range engineNames {
				values[name] = true
			}
		case "label", "name":
			a.eachRun(cmd, spool.Filter{}, func(info spool.Info) {
				switch key {
				case "name":
					values[info.Name] = true
				default:
					for name, value := range info.Labels {
						values[name+"="+value] = true
					}
				}
			})
		}
		for _, value := range slices.Sorted(maps.Keys(values)) {
			if offer := key + "=" + value; value != "" && strings.HasPrefix(offer, pair) {
				offers = append(offers, done+offer)
			}
		}
		return offers, directive
	}
	if err := cmd.RegisterFlagCompletionFunc("filter", complete); err != nil { // there is no such flag
		panic(err)
	}
}
