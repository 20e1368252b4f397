package local_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/local"
)

// The run lives on if this program ends or dies; a program that opens the directory
// again finds it by its name.
func ExampleOpen() {
	local.ChildMain() // the first statement of main

	ctx := context.Background()
	backend, err := local.Open("", local.Options{}) // the user's state directory
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()

	run, err := spool.Start(ctx, backend, spool.Spec{
		Name:      "web",
		Argv:      []string{"python3", "-m", "http.server"},
		EnvPolicy: &spool.EnvPolicy{Inherit: "core"},
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("started", run.ID())
}

// Runs that need not outlive the program need no keeper.
func ExampleOpen_inProcess() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "spool-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	backend, err := local.Open(dir, local.Options{InProcess: true})
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()

	run, err := spool.Start(ctx, backend, spool.Spec{Argv: []string{"/bin/echo", "hello"}})
	if err != nil {
		log.Fatal(err)
	}
	out, err := run.Output(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", out)
	// Output: hello
}
