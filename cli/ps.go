package cli

import "github.com/spf13/cobra"

func (a *app) psCommand() *cobra.Command { return &cobra.Command{Use: "ps"} }
