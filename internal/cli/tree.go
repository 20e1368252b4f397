package cli

import "github.com/spf13/cobra"

// Tree returns the commands of spool with their flags. Tests of the
// documentation use it; the commands cannot be executed.
func Tree() *cobra.Command {
	root := new(app).command("")
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	return root
}
