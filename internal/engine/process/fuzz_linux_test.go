package process

import "testing"

// FuzzSignal checks that a signal is one of the kernel's, and that its name means
// the same signal.
func FuzzSignal(f *testing.F) {
	for _, s := range []string{"SIGHUP", "hup", "9", "64", "65", "-1", "SIG", "RTMIN+1", "KıLL"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		sig, err := parseSignal(s)
		if err != nil {
			return
		}
		if sig < 1 || sig > 64 {
			t.Errorf("signal %q is %d", s, sig)
		}
		if again, err := parseSignal(signalName(sig)); sig < 32 && (err != nil || again != sig) {
			t.Errorf("signal %q is %d, its name %s is %d: %v", s, sig, signalName(sig), again, err)
		}
	})
}
