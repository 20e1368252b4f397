package execserver

import (
	"fmt"
	"testing"
	"time"
)

// TestDecisionWait checks how long a decision is waited for.
func TestDecisionWait(t *testing.T) {
	for ms, want := range map[uint64]time.Duration{
		1: decisionMargin + time.Millisecond, 3000: decisionMargin + 3*time.Second, 86_400_000: maxDecisionWait, 1<<64 - 1: maxDecisionWait,
	} {
		raw := fmt.Sprintf(`{"policyDecisionTimeoutMs":%d}`, ms)
		o, err := newObject([]byte(raw), "", false)
		if err != nil {
			t.Fatal(err)
		}
		var l proxyLaunch
		if err := l.parseWait(o); err != nil || l.wait != want {
			t.Errorf("%s: %v, %v, want %v", raw, l.wait, err, want)
		}
	}
}
