package mcpapi_test

import (
	"flag"
	"fmt"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/wire/mcpapi"
)

var (
	longFor  = flag.Duration("long", 2*time.Second, "how long the command of TestLongCommand takes")
	callsFor = flag.Duration("calls", 500*time.Millisecond, "how long each of its calls waits; 50s at most")
)

// TestLongCommand has calls wait for a command that takes much longer than each of them: the
// calls end in time, and show every line once.
func TestLongCommand(t *testing.T) {
	c := connect(t, mcpapi.Options{Backend: openHost(t)}, versions[0], nil)
	const ticks = 20
	step := longFor.Seconds() / ticks
	began, calls := time.Now(), 0
	var got []int
	call := func(tool string, a args) mcpapi.RunView {
		t.Helper()
		a["wait_ms"] = callsFor.Milliseconds()
		at := time.Now()
		v, text := c.call(tool, a)
		// Clients give up after 60 s. What a busy machine adds is not the call's.
		if took := time.Since(at); took > *callsFor+9*time.Second {
			t.Errorf("call %d took %v", calls+1, took)
		}
		calls++
		for _, m := range regexp.MustCompile(`(?m)^tick (\d+)$`).FindAllStringSubmatch(text, -1) {
			n, _ := strconv.Atoi(m[1]) // they are digits
			got = append(got, n)
		}
		return v
	}
	v := call("run_command", args{"command": fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo tick $i; i=$((i+1)); sleep %g; done", ticks, step)})
	for v.State == "running" {
		v = call("read_run", args{"run": v.Run, "after": v.Next, "until": "end"})
	}
	for i := range max(ticks, len(got)) {
		if i >= len(got) || got[i] != i {
			t.Fatalf("%d calls showed %v", calls, got)
		}
	}
	if took := time.Since(began); took < *longFor || calls < int(*longFor / *callsFor)/2 {
		t.Errorf("%d calls in %v", calls, took)
	}
	t.Logf("%d calls in %v", calls, time.Since(began).Round(time.Millisecond))
}
