package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// usageErrorOf turns an error of the flag parser into one that says what to type
// instead.
func usageErrorOf(cmd *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	var invalid *pflag.InvalidValueError
	switch {
	case errors.As(err, &unknown) && unknown.GetSpecifiedShortnames() != "":
		return &usageError{fmt.Errorf("unknown flag -%s", unknown.GetSpecifiedName())}
	case errors.As(err, &unknown):
		err := fmt.Errorf("unknown flag --%s", unknown.GetSpecifiedName())
		if near := nearest(unknown.GetSpecifiedName(), flagNames(cmd)); near != "" {
			return &hintedError{&usageError{err}, fmt.Sprintf("did you mean --%s?", near)}
		}
		return &usageError{err}
	case errors.As(err, &invalid):
		return &usageError{fmt.Errorf("--%s: %w", invalid.GetFlag().Name, valueError(invalid.GetFlag().Value.Type(), invalid.GetValue(), invalid.Unwrap()))}
	}
	return &usageError{err}
}

// valueError says what is wrong with the text of a flag's value, in the words of
// the person who typed it. Kind is the type of the flag.
func valueError(kind, text string, err error) error {
	switch {
	case kind == "duration":
		return spanError(text, false)
	case strings.HasPrefix(kind, "int"):
		return fmt.Errorf("%q is not a whole number", text)
	case strings.HasPrefix(kind, "uint"):
		return fmt.Errorf("%q is not a whole number of 0 or more", text)
	case strings.HasPrefix(kind, "float"):
		return fmt.Errorf("%q is not a number", text)
	case kind == "bool":
		return fmt.Errorf("%q is neither true nor false", text)
	}
	return err
}

// flagNames returns the names of the flags that a command has.
func flagNames(cmd *cobra.Command) []string {
	var names []string
	add := func(f *pflag.Flag) {
		if !f.Hidden {
			names = append(names, f.Name)
		}
	}
	cmd.Flags().VisitAll(add)
	cmd.InheritedFlags().VisitAll(add)
	return names
}

// verbs returns the names and aliases of the commands below one.
func verbs(cmd *cobra.Command) []string {
	var names []string
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() {
			names = append(append(names, c.Name()), c.Aliases...)
		}
	}
	return names
}

// unknownVerb is the error for a command that does not exist.
func unknownVerb(parent *cobra.Command, word string) error {
	err := &usageError{fmt.Errorf("unknown command %q for %q", word, parent.CommandPath())}
	if near := nearest(word, verbs(parent)); near != "" {
		return &hintedError{err, fmt.Sprintf("did you mean %q?", parent.CommandPath()+" "+near)}
	}
	return err
}

// noVerb refuses arguments of a command that only has subcommands.
func noVerb(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return unknownVerb(cmd, args[0])
}

// strictCompletion makes "spool completion" fail for an unknown shell, as other commands
// with subcommands do.
func strictCompletion(root *cobra.Command) {
	root.InitDefaultCompletionCmd()
	for _, cmd := range root.Commands() {
		if cmd.Name() == "completion" {
			cmd.Short = "Print the script with which a shell completes commands"
			cmd.Args = noVerb
			cmd.RunE = func(cmd *cobra.Command, _ []string) error { return cmd.Help() }
		}
	}
}

// helpCommand is "spool help", which fails for an unknown command.
func helpCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "help [flags] [command]",
		Short:   "Print the help of a command",
		Long:    "Help prints the help of a command, as --help does.",
		Example: "  spool help\n  spool help run\n  spool help agent list",
		ValidArgsFunction: func(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
			parent, rest, err := cmd.Root().Find(args)
			if err != nil || len(rest) > 0 {
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			var offers []string
			for _, c := range parent.Commands() {
				if c.IsAvailableCommand() && strings.HasPrefix(c.Name(), prefix) {
					offers = append(offers, c.Name()+"\t"+c.Short)
				}
			}
			return offers, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			topic := cmd.Root()
			for _, word := range args {
				i := slices.IndexFunc(topic.Commands(), func(c *cobra.Command) bool {
					return c.Name() == word || c.HasAlias(word)
				})
				if i < 0 {
					return unknownVerb(topic, word)
				}
				topic = topic.Commands()[i]
			}
			topic.InitDefaultHelpFlag()
			return topic.Help()
		},
	}
}
