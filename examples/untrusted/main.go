// Command untrusted runs untrusted Python, in a sandbox that
// sees one directory, read-only, and nothing else of this machine.
//
//	go run ./untrusted ~/data 'import os; print(os.listdir("/data"))'
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/local"
	"github.com/spool-run/spool/python"
)

func main() {
	local.ChildMain()
	if len(os.Args) != 3 {
		log.Fatal("usage: untrusted DIRECTORY CODE")
	}
	code, err := run(context.Background(), os.Args[1], os.Args[2])
	if err != nil {
		log.Fatal(err)
	}
	os.Exit(code)
}

func run(ctx context.Context, dir, code string) (exitCode int, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return 0, err
	}
	// Nothing of it has to outlive this program, so no keeper is needed.
	backend, err := local.Open("", local.Options{InProcess: true})
	if err != nil {
		return 0, err
	}
	defer backend.Close()

	sandbox, err := spool.Start(ctx, backend, python.SandboxConfig{
		Backend: python.BackendEmbedded,
		Mounts:  []python.Mount{{Host: dir, Guest: "/data", Mode: python.MountReadOnly}},
		Script:  true,
		Limits:  python.SandboxLimits{WallMs: time.Minute.Milliseconds(), MemoryBytes: 128 << 20},
	}.Spec())
	if err != nil {
		return 0, err
	}
	turn, err := sandbox.Exec(ctx, "", spool.Cell{Code: code})
	if err != nil {
		return 0, err
	}
	for e, err := range turn.Events(ctx) {
		if err != nil {
			return 0, err
		}
		switch e.Kind {
		case spool.KindOutput:
			os.Stdout.Write(e.Bytes)
		case python.KindException:
			var exception python.Exception
			if err := json.Unmarshal(e.Data, &exception); err != nil {
				return 0, err
			}
			if !exception.Printed {
				fmt.Println(exception.Traceback)
			}
		}
	}
	done, err := turn.Wait(ctx)
	if err != nil {
		return 0, err
	}
	fmt.Println("outcome:", done.Outcome)
	if done.ExitCode == nil {
		return 1, nil
	}
	return *done.ExitCode, nil
}
