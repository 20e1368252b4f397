// Command command runs a command, shows its output while it runs, and exits
// with its exit code.
//
//	go run ./command make test
package main

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/local"
)

func main() {
	local.ChildMain()
	if len(os.Args) < 2 {
		log.Fatal("usage: command PROGRAM [ARGUMENT…]")
	}
	outcome, err := run(context.Background(), os.Args[1:])
	if err != nil {
		log.Fatal(err)
	}
	fmt.Fprintln(os.Stderr, outcome)
	os.Exit(outcome.ExitCode())
}

func run(ctx context.Context, argv []string) (spool.Outcome, error) {
	backend, err := local.Open("", local.Options{})
	if err != nil {
		return spool.Outcome{}, err
	}
	defer backend.Close()

	run, err := spool.Start(ctx, backend, spool.Spec{
		Argv:      argv,
		EnvPolicy: &spool.EnvPolicy{Inherit: "all"},
	})
	if err != nil {
		return spool.Outcome{}, err
	}
	fmt.Fprintln(os.Stderr, "run", run.ID())
	for e, err := range run.Events(ctx, 0) {
		if err != nil {
			return spool.Outcome{}, err
		}
		switch e.Stream {
		case spool.Stdout:
			os.Stdout.Write(e.Bytes)
		case spool.Stderr:
			os.Stderr.Write(e.Bytes)
		}
	}
	return run.Wait(ctx)
}
