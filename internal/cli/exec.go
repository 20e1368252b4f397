package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
)

func (a *app) execCommand() *cobra.Command {
	o := runOptions{keys: defaultDetachKeys}
	cmd := &cobra.Command{
		Use:   "exec [flags] RUN -- command [argument…]",
		Short: "Run a command in the directory and environment of a live run",
		Long: `Exec starts a command with the working directory and the environment of the
process of a live run, prints its output and exits with its exit code. The command
is a run of its own: "spool ps" lists it, and it may outlive the other one. It
works on the machine of the run, and not with sandboxes, which have no process.

Exit codes: those of "spool run".`,
		Example: `  spool exec web -- env
  spool exec --tty web -- sh`,
		Args:              usageArgs(cobra.MinimumNArgs(2)),
		ValidArgsFunction: a.completeLiveRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			argv := args[1:]
			if argv[0] == "--" {
				argv = argv[1:]
			}
			if len(argv) == 0 {
				return usageErrorf("say which command to run: exec RUN -- command")
			}
			spec, err := a.specLike(cmd.Context(), args[0], &o, argv)
			if err != nil {
				return err
			}
			return a.runSpec(cmd.Context(), &o, spec)
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false) // flags after the run are the command's
	flags.BoolVarP(&o.tty, "tty", "t", false, "give the command a terminal")
	flags.BoolVar(&o.json, "json", false, "print events, one JSON object per line")
	flags.StringVar(&o.cwd, "cwd", "", "working `directory`, instead of that of the run")
	flags.StringArrayVar(&o.env, "env", nil, "set an environment variable; `NAME=VALUE`, or NAME to pass it on")
	flags.StringVar(&o.name, "name", "", "`name` of the new run, unique among live runs")
	flags.BoolVar(&o.replace, "replace", false, "stop the live run that has the name first")
	flags.BoolVarP(&o.detach, "detach", "d", false, "run in the background and print the run's id")
	o.addReaderFlags(flags)
	o.limits.add(flags, "")
	return cmd
}

// specLike builds the spec of a command in the directory and environment of a
// live run, with the same isolation.
func (a *app) specLike(ctx context.Context, name string, o *runOptions, argv []string) (spool.Spec, error) {
	if _, remote := a.remote(); remote {
		return spool.Spec{}, &hintedError{
			errors.New("exec does not work with --server: the environment of a run does not leave its machine"),
			"run \"spool exec\" on the machine of the server, or \"spool run --server\" with --cwd and --env",
		}
	}
	spec, err := a.spec(o, argv)
	if err != nil {
		return spec, err
	}
	err = with(a.open, ctx, func(b spool.Backend) error {
		run, info, err := findInfo(ctx, b, name)
		if err != nil {
			return err
		}
		if info.Pid == 0 && info.State == spool.StateRunning {
			return fmt.Errorf("run %s (%s) has no process whose environment could be used", name, info.Engine)
		}
		if info.State != spool.StateRunning {
			return &hintedError{fmt.Errorf("run %s has ended, and its environment with it", name), `"spool run" starts a command in your environment`}
		}
		env, err := environOf(info.Pid)
		if err != nil {
			return fmt.Errorf("read the environment of run %s: %w", name, err)
		}
		// The process may have ended meanwhile, and another may have its pid.
		if now, err := run.Info(ctx); err != nil || now.State != spool.StateRunning {
			return fmt.Errorf("run %s has ended", name)
		}
		for k, v := range spec.Env {
			env[k] = v
		}
		spec.Env, spec.EnvPolicy = env, nil
		spec.Isolation = isolationLike(&info)
		if o.cwd == "" {
			spec.Cwd = info.Cwd
			if cwd, err := os.Readlink("/proc/" + strconv.Itoa(info.Pid) + "/cwd"); err == nil && spec.Cwd == "" {
				spec.Cwd = cwd
			}
		}
		return nil
	})
	return spec, err
}

// environOf returns the environment that a process was started with.
func environOf(pid int) (map[string]string, error) {
	b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/environ")
	if err != nil {
		return nil, err
	}
	env := make(map[string]string)
	for kv := range strings.SplitSeq(string(b), "\x00") {
		if name, value, ok := strings.Cut(kv, "="); ok && name != "" && name != "SPOOL_TREE" {
			env[name] = value
		}
	}
	return env, nil
}
