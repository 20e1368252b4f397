package collector

import (
	"testing"
	"time"
)

// TestWorks checks that only a process that uses a fifth of a processor or more works.
func TestWorks(t *testing.T) {
	for _, c := range []struct {
		used, passed time.Duration
		want         bool
	}{
		{someWork, atWork, true},
		{someWork - time.Millisecond, atWork, false},
		{time.Second, time.Second, true},
		{700 * time.Millisecond, 2 * time.Minute, false}, // an idle node of a cluster
		{0, atWork, false},
	} {
		if got := works(c.used, c.passed); got != c.want {
			t.Errorf("%v of %v: %v", c.used, c.passed, got)
		}
	}
}
