// Package spool is the vocabulary of Spool, the execution plane for AI agents,
// and the handles to runs and turns. It imports the standard library only.
//
// Every run, of anything, is an append-only log with one writer; everyone else
// is a reader with a cursor. A [Backend] starts runs and keeps their logs.
// There are two: package local runs things on this machine, and package client
// is a connection to a server. A program holds a [Run] and works the same with
// both.
//
// # Runs
//
// [Start] starts what a [Spec] says. The zero value of most fields is usable:
//
//	run, err := spool.Start(ctx, backend, spool.Spec{
//		Name:      "tests",
//		Argv:      []string{"make", "test"},
//		EnvPolicy: &spool.EnvPolicy{Inherit: "core"},
//		Limits:    spool.Limits{Wall: 10 * time.Minute},
//	})
//
// A process sees only the variables of Env, unless EnvPolicy makes it inherit
// some. [Find] returns a run by its name or id, [Attach] by its id alone, and
// [Backend.List] lists runs. [Run.Info] describes one at this moment. [Execute]
// starts a run and waits for its end.
//
// # Events
//
// [Run.Events] yields the log after a cursor: what is there first, then what
// comes, until the run has ended and nothing can follow. An [Event] has a
// [Seq], 1, 2, 3 … without holes, which is the cursor to come back with after
// anything that went wrong:
//
//	for e, err := range run.Events(ctx, last) { // zero: from the start
//		if err != nil {
//			return err
//		}
//		last = e.Seq
//		os.Stdout.Write(e.Bytes)
//	}
//	outcome, err := run.Wait(ctx)
//
// A process writes output events, then exited, then closed. The [Kind] of an
// event says what its Data is: a [Done], an [Ask], a [Notice]; package python
// has the data of kernels and sandboxes, package agent that of agents, and
// package render turns the events of Python runs, asks and notices into text.
// [Run.Output] waits for the end of a run and returns its bytes.
//
// An [Outcome] is exited, failed or unknown. Only a wait status of the
// operating system makes an exit: what cannot be known is unknown.
//
// # Input and control
//
// [Run.Stdin] writes to a process that was started with Stdin or TTY.
// [Run.Interrupt], [Run.Signal], [Run.Resize], [Run.Stop] and [Run.Kill] act
// at once, ahead of any input. Stop and Kill end the whole process tree. They
// do not wait; [Run.Wait] does.
//
// # Turns
//
// Kernels, sandboxes and agents live on and take turns. [Run.Exec] runs a cell
// of Python and [Run.Prompt] tells an agent something; both return a [Turn],
// whose Events end with its done event:
//
//	kernel, err := spool.Start(ctx, backend, python.KernelConfig{}.Spec())
//	…
//	turn, err := kernel.Exec(ctx, "", spool.Cell{Code: "6 * 7"})
//	…
//	done, err := turn.Wait(ctx) // done.Outcome is TurnOK
//
// # Asks
//
// A run that needs something of the program that uses it writes an [Ask] and
// waits: a line of
// input, a permission, a call of a host function. Any program that reads the
// log may answer, once, with [Run.Reply] or [Run.Answer]. [Run.ServeTools]
// answers calls of Go functions.
//
// # Errors
//
// Errors are the same in process and over a connection: branch on them with
// [errors.Is] and the variables below, and on failed starts with [errors.As]
// and [*StartError]. Starts and inputs that carry an id can be repeated after
// an error: they are applied once.
package spool
