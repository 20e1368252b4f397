package cli

import "github.com/spf13/cobra"

func (a *app) attachCommand() *cobra.Command { return &cobra.Command{Use: "attach"} }
