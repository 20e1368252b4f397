package keeper_test

import (
	"testing"

	"github.com/spool-run/spool"
)

// BenchmarkStart measures the start of a process through a keeper, until its
// exit is known.
func BenchmarkStart(b *testing.B) {
	backend := open(b, stateDir(b), "one")
	run := func() {
		r, err := spool.Start(b.Context(), backend, spool.Spec{Argv: []string{"true"}})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := r.Wait(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
	run() // starts the keeper
	b.ReportAllocs()
	for b.Loop() {
		run()
	}
}
