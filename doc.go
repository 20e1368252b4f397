// Package spool is the vocabulary of Spool, the execution plane for AI
// agents, and the handle to a run.
//
// Every run, of anything, is an append-only log with one writer; everyone
// else is a reader with a cursor. A [Backend] starts runs and keeps their
// logs: package host runs them in this process, package client on a server
// across the wire. A program holds a [Run] and does not notice which:
//
//	h, err := host.Open(host.Options{Dir: dir})
//	…
//	run, err := spool.Start(ctx, h, spool.Spec{Argv: []string{"make", "test"}})
//	…
//	for e, err := range run.Events(ctx, 0) {
//		…
//	}
//	outcome, err := run.Wait(ctx)
//
// The log outlives the run, the connection and the server. Whoever comes
// back with the seq of the last event it saw gets every later one exactly
// once.
//
// This package imports the standard library only.
package spool
