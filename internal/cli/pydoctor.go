package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool/local"
)

func (a *app) pyDoctorCommand() *cobra.Command {
	var o pyOptions
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Show which Python is used, and why not another",
		Long: `Doctor starts each Python that "spool py" could use, in the order in which py tries
them. It prints which one py uses, its version, and why it passes over the others.
It exits with 127 if none works.`,
		Args: usageArgs(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.pyDoctor(cmd.Context(), &o) },
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.json, "json", false, "print one JSON object per interpreter")
	flags.StringVar(&o.python, "python", "", "`interpreter` to try")
	flags.StringVar(&o.cwd, "cwd", "", "working `directory`")
	return cmd
}

func (a *app) pyDoctor(ctx context.Context, o *pyOptions) error {
	if url, ok := a.remote(); ok {
		return usageErrorf("cannot check %s: py doctor works only on this machine", url)
	}
	spec, err := a.pySpec(o)
	if err != nil {
		return err
	}
	found, err := local.Interpreters(ctx, spec)
	if err != nil {
		return err
	}
	works := false
	for _, i := range found {
		works = works || i.Used
		if err := a.printInterpreter(&i, o.json); err != nil {
			return err
		}
	}
	if !works {
		return &exitError{exitNotFound, &hintedError{errors.New("no Python interpreter works"), "install Python 3.9 or later, or name an interpreter with --python"}}
	}
	return nil
}

func (a *app) printInterpreter(i *local.Interpreter, asJSON bool) error {
	if asJSON {
		return json.NewEncoder(a.stdout).Encode(i)
	}
	mark := "--"
	switch {
	case i.Used:
		mark = "->"
	case i.OK:
		mark = "ok"
	}
	text := i.Path
	if i.Version != "" {
		text += ", Python " + i.Version
	}
	text += " (" + i.From + ")"
	if i.Executable != "" {
		text += " -> " + i.Executable
	}
	if i.Text != "" {
		text += ": " + i.Text
	}
	_, err := fmt.Fprintf(a.stdout, "%s %s\n", mark, text)
	return err
}
