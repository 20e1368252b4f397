package client_test

import (
	"context"
	"fmt"
	"log"
	"os"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
)

// A command runs on a server, and its output comes here, once and in order,
// whatever happens to the connection.
func ExampleDial() {
	ctx := context.Background()
	backend, err := client.Dial(ctx, "ws://127.0.0.1:9000", client.Options{Token: os.Getenv("SPOOL_TOKEN")})
	if err != nil {
		log.Fatal(err)
	}
	defer backend.Close()

	run, err := spool.Start(ctx, backend, spool.Spec{
		Argv:      []string{"make", "test"},
		Cwd:       "/srv/project",
		EnvPolicy: &spool.EnvPolicy{Inherit: "core"},
	})
	if err != nil {
		log.Fatal(err)
	}
	for e, err := range run.Events(ctx, 0) {
		if err != nil {
			log.Fatal(err)
		}
		os.Stdout.Write(e.Bytes)
	}
	outcome, err := run.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(outcome)
}
