package natsd

import (
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server/ats"

	"github.com/spool-run/spool/internal/polltest"
)

// TestAccessTime checks that the time of accesses goes on without the goroutine of NATS,
// also in the second server of a process.
func TestAccessTime(t *testing.T) {
	for _, server := range []string{"first", "second"} {
		t.Run(server, func(t *testing.T) {
			_, f := open(t, t.TempDir())
			if err := f.ready(t.Context()); err != nil { // then there are files
				t.Fatal(err)
			}
			polltest.Until(t, "the goroutine of NATS ends", func() bool {
				stacks := make([]byte, 1<<20)
				return !strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), "server/ats.Register")
			})
			for range 2 {
				before := ats.AccessTime()
				polltest.Until(t, "the time goes on", func() bool { return ats.AccessTime() > before })
				if late := time.Since(time.Unix(0, ats.AccessTime())); late > 10*accessTick {
					t.Errorf("it is %v late", late)
				}
			}
		})
	}
}
