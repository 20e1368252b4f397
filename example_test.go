package spool_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/local"
	"github.com/spool-run/spool/python"
)

func TestMain(m *testing.M) {
	local.ChildMain()
	os.Exit(m.Run())
}

// open opens a backend for an example.
func open() (local.Backend, func()) {
	dir, err := os.MkdirTemp("", "spool-example-")
	if err != nil {
		log.Fatal(err)
	}
	backend, err := local.Open(filepath.Join(dir, "state"), local.Options{InProcess: true})
	if err != nil {
		log.Fatal(err)
	}
	return backend, func() {
		if err := backend.Close(); err != nil {
			log.Fatal(err)
		}
		os.RemoveAll(dir)
	}
}

func ExampleStart() {
	ctx := context.Background()
	backend, cleanup := open()
	defer cleanup()

	run, err := spool.Start(ctx, backend, spool.Spec{
		Argv:      []string{"/bin/sh", "-c", "echo hello; exit 3"},
		EnvPolicy: &spool.EnvPolicy{Inherit: "core"},
	})
	if err != nil {
		log.Fatal(err)
	}
	for e, err := range run.Events(ctx, 0) {
		if err != nil {
			log.Fatal(err)
		}
		if o, ok := e.Outcome(); ok {
			fmt.Println(e.Seq, e.Kind, o)
		} else {
			fmt.Printf("%d %s %q\n", e.Seq, e.Kind, e.Bytes)
		}
	}
	// Output:
	// 1 output "hello\n"
	// 2 exited exited 3
	// 3 closed ""
}

// A reader that comes back with the seq of the last event it saw gets every
// later one, once.
func ExampleRun_Events() {
	ctx := context.Background()
	backend, cleanup := open()
	defer cleanup()

	run, err := spool.Start(ctx, backend, spool.Spec{Name: "greeting", Argv: []string{"/bin/echo", "hello"}})
	if err != nil {
		log.Fatal(err)
	}
	var last spool.Seq
	for e, err := range run.Events(ctx, 0) {
		if err != nil {
			log.Fatal(err)
		}
		last = e.Seq
		fmt.Println("first reader:", e.Seq, e.Kind)
		break // or the connection is lost, or the program dies
	}

	again, err := spool.Find(ctx, backend, "greeting")
	if err != nil {
		log.Fatal(err)
	}
	for e, err := range again.Events(ctx, last) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println("second reader:", e.Seq, e.Kind)
	}
	// Output:
	// first reader: 1 output
	// second reader: 2 exited
	// second reader: 3 closed
}

func ExampleRun_Stdin() {
	ctx := context.Background()
	backend, cleanup := open()
	defer cleanup()

	run, err := spool.Start(ctx, backend, spool.Spec{Argv: []string{"/usr/bin/env", "sort"}, Stdin: true, EnvPolicy: &spool.EnvPolicy{Inherit: "core"}})
	if err != nil {
		log.Fatal(err)
	}
	stdin := run.Stdin(ctx)
	fmt.Fprint(stdin, "pear\napple\n")
	if err := stdin.Close(); err != nil {
		log.Fatal(err)
	}
	out, err := run.Output(ctx, spool.Stdout)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s", out)
	// Output:
	// apple
	// pear
}

// A cell of a kernel calls a function of this program.
func ExampleRun_ServeTools() {
	ctx := context.Background()
	backend, cleanup := open()
	defer cleanup()

	kernel, err := spool.Start(ctx, backend, python.KernelConfig{Tools: []string{"price"}}.Spec())
	if err != nil {
		log.Fatal(err)
	}
	served := make(chan error)
	go func() {
		served <- kernel.ServeTools(ctx, 0, map[string]spool.Tool{
			"price": func(_ context.Context, args json.RawMessage) (any, error) {
				return 42, nil
			},
		})
	}()

	turn, err := kernel.Exec(ctx, "", spool.Cell{Code: `print(tool.price(item="lamp") * 2)`})
	if err != nil {
		log.Fatal(err)
	}
	for e, err := range turn.Events(ctx) {
		if err != nil {
			log.Fatal(err)
		}
		fmt.Print(string(e.Bytes))
	}
	if err := kernel.Stop(ctx); err != nil {
		log.Fatal(err)
	}
	if err := <-served; err != nil {
		log.Fatal(err)
	}
	// Output: 84
}

func ExampleTurn_Interrupt() {
	ctx := context.Background()
	backend, cleanup := open()
	defer cleanup()

	kernel, err := spool.Start(ctx, backend, python.KernelConfig{}.Spec())
	if err != nil {
		log.Fatal(err)
	}
	turn, err := kernel.Exec(ctx, "", spool.Cell{Code: "while True: pass"})
	if err != nil {
		log.Fatal(err)
	}
	if err := turn.Interrupt(ctx, 0); err != nil {
		log.Fatal(err)
	}
	done, err := turn.Wait(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(done.Outcome)
	// Output: interrupted
}

func ExampleExecute() {
	ctx := context.Background()
	backend, cleanup := open()
	defer cleanup()

	info, err := spool.Execute(ctx, backend, spool.Spec{
		Argv:      []string{"/bin/sh", "-c", "echo hello; exit 3"},
		EnvPolicy: &spool.EnvPolicy{Inherit: "core"},
	})
	if err != nil {
		log.Fatal(err)
	}
	output, err := spool.Attach(backend, info.ID).Output(ctx)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s: %q\n", info.Outcome, output)
	// Output: exited 3: "hello\n"
}
