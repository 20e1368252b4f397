package cli

import "github.com/spf13/cobra"

func (a *app) waitCommand() *cobra.Command { return &cobra.Command{Use: "wait"} }
