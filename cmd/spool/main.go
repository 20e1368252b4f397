// Command spool runs commands with a log that outlives them. See package cli.
package main

import (
	"os"

	"github.com/spool-run/spool/internal/cli"
	"github.com/spool-run/spool/local"
)

func main() {
	local.ChildMain()
	os.Exit(cli.Main(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}
