package process

import (
	"testing"
	"time"

	"github.com/spool-run/spool"
)

// A process whose spec has no limits gets those of the documentation.
func TestDefaultLimits(t *testing.T) {
	s, _ := start(t, open(t, Options{}), spool.Spec{Argv: []string{"true"}})
	l := s.(*session).limits
	if l.Grace != 5*time.Second || l.OutputBytes != 2<<30 || l.Pids != 4096 || l.Wall != 0 || l.Idle != 0 {
		t.Errorf("%+v", l)
	}
	s.Wait()
}
