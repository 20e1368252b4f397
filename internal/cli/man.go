package cli

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// manCommand writes the man pages, for installers.
func (a *app) manCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "man DIRECTORY",
		Short:  "Write the man pages to a directory",
		Hidden: true,
		Long: `Man writes the man pages of spool, one per command, to a directory, such as
~/.local/share/man/man1.`,
		Example: "  spool man ~/.local/share/man/man1",
		Args:    usageArgs(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := os.MkdirAll(args[0], 0o755); err != nil {
				return fmt.Errorf("make the directory: %w", err)
			}
			root := cmd.Root()
			root.InitDefaultCompletionCmd()
			return writeMan(root, args[0])
		},
	}
}

// writeMan writes the man pages of a command and of the commands below it.
func writeMan(cmd *cobra.Command, dir string) error {
	name := manName(cmd)
	if err := os.WriteFile(filepath.Join(dir, name+".1"), manPage(cmd), 0o644); err != nil {
		return fmt.Errorf("write the man page: %w", err)
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			if err := writeMan(c, dir); err != nil {
				return err
			}
		}
	}
	return nil
}

// manName returns the name of the man page of a command, such as spool-run.
func manName(cmd *cobra.Command) string { return strings.ReplaceAll(cmd.CommandPath(), " ", "-") }

// manPage returns the man page of a command, in roff.
func manPage(cmd *cobra.Command) []byte {
	var b bytes.Buffer
	v := version()
	day, _, _ := strings.Cut(v.Date, "T")
	fmt.Fprintf(&b, ".TH \"%s\" \"1\" \"%s\" \"spool %s\" \"Spool\"\n", strings.ToUpper(manName(cmd)), day, roff(v.Version))
	fmt.Fprintf(&b, ".nh\n.ad l\n.SH NAME\n%s \\- %s\n", roff(manName(cmd)), roff(cmd.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", roff(cmd.UseLine()))
	b.WriteString(".SH DESCRIPTION\n")
	manText(&b, cmd.Long)
	manFlags(&b, "OPTIONS", cmd.NonInheritedFlags())
	manFlags(&b, "OPTIONS OF EVERY COMMAND", cmd.InheritedFlags())
	if cmd.Example != "" {
		b.WriteString(".SH EXAMPLES\n")
		manText(&b, cmd.Example)
	}
	var also []string
	if cmd.HasParent() {
		also = append(also, manName(cmd.Parent()))
	}
	for _, c := range cmd.Commands() {
		if c.IsAvailableCommand() && c.Name() != "help" {
			also = append(also, manName(c))
		}
	}
	if len(also) > 0 {
		b.WriteString(".SH SEE ALSO\n")
		for i, name := range also {
			comma := ","
			if i == len(also)-1 {
				comma = ""
			}
			fmt.Fprintf(&b, ".BR %s (1)%s\n", roff(name), comma)
		}
	}
	return b.Bytes()
}

// manText writes paragraphs. Indented lines stay as they are.
func manText(b *bytes.Buffer, text string) {
	verbatim, open := false, false
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		if indented := strings.HasPrefix(line, "  "); line != "" && indented != verbatim {
			if verbatim = indented; verbatim {
				b.WriteString(".PP\n.nf\n")
			} else {
				b.WriteString(".fi\n.PP\n")
			}
			open = true
		}
		switch {
		case line == "" && !verbatim:
			b.WriteString(".PP\n")
		default:
			b.WriteString(roff(line) + "\n")
		}
	}
	if verbatim && open {
		b.WriteString(".fi\n")
	}
}

// manFlags writes a section about flags.
func manFlags(b *bytes.Buffer, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(b, ".SH %s\n", title)
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden {
			return
		}
		name, usage := pflag.UnquoteUsage(f)
		head := `\fB` + roff("--"+f.Name) + `\fP`
		if f.Shorthand != "" {
			head = `\fB` + roff("-"+f.Shorthand) + `\fP, ` + head
		}
		if name != "" {
			head += ` \fI` + roff(name) + `\fP`
		}
		fmt.Fprintf(b, ".TP\n%s\n%s", head, roff(usage))
		if f.DefValue != "" && f.DefValue != "false" && f.DefValue != "0" && f.DefValue != "0s" && f.DefValue != "[]" && f.DefValue != "-1" {
			fmt.Fprintf(b, " (default %s)", roff(f.DefValue))
		}
		b.WriteByte('\n')
	})
}

// roff escapes text: backslashes, dashes, quotes, and dots at the beginning of a
// line, which are commands.
func roff(s string) string {
	s = strings.NewReplacer(`\`, `\e`, `-`, `\-`, `'`, `\(aq`, "`", `\(ga`, `^`, `\(ha`, `~`, `\(ti`, `…`, `...`).Replace(s)
	if strings.HasPrefix(s, ".") {
		s = `\&` + s
	}
	return s
}
