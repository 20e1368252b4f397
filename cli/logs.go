package cli

import "github.com/spf13/cobra"

func (a *app) logsCommand() *cobra.Command { return &cobra.Command{Use: "logs"} }
