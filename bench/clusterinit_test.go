package main

import (
	"testing"
	"time"
)

func TestInitTime(t *testing.T) {
	const trace = `init internal/bytealg @0.011 ms, 0 ms clock, 0 bytes, 0 allocs
init github.com/nats-io/nats%2ego @1.5 ms, 0.20 ms clock, 1024 bytes, 3 allocs
something else that the program printed
init other/only @1.9 ms, 0.005 ms clock, 16 bytes, 1 allocs
`
	packages := map[string]bool{"github.com/nats-io/nats.go": true, "other/only": true, "not/initialised": true}
	if took, found, err := initTime(trace, packages); err != nil || found != 2 || took != 205*time.Microsecond {
		t.Errorf("%d packages take %v, %v", found, took, err)
	}
	if _, found, err := initTime(trace, nil); err != nil || found != 0 {
		t.Errorf("of no packages %d were found, %v", found, err)
	}
}

// TestOnlyNATS checks that what the program needs anyway is not counted.
func TestOnlyNATS(t *testing.T) {
	t.Chdir("..")
	only, err := onlyNATS(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]bool{"github.com/nats-io/nats-server/v2/server": true, "github.com/nats-io/nuid": true, "net/http": false, "runtime": false, "github.com/spool-run/spool": false} {
		if only[name] != want {
			t.Errorf("only NATS needs %s: %v", name, only[name])
		}
	}
}
