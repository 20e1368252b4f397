package cli

import "github.com/spf13/cobra"

func (a *app) killCommand() *cobra.Command { return &cobra.Command{Use: "kill"} }
