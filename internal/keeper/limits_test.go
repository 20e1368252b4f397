package keeper

import (
	"errors"
	"testing"
	"testing/synctest"

	"github.com/spool-run/spool"
)

// A connection runs maxInFlight requests, and requests of maxInFlightBytes, at
// once; a further one waits.
func TestRequestsOfAConnectionAreBounded(t *testing.T) {
	for name, tt := range map[string]struct{ size, want int }{
		"requests": {1, maxInFlight},
		"bytes":    {1 << 20, maxInFlightBytes >> 20},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLanes()
				release, done := make(chan struct{}), make(chan struct{})
				admitted := 0
				go func() {
					defer close(done)
					for range tt.want + 1 {
						l.Go("lane", tt.size, func() { <-release })
						admitted++
					}
				}()
				synctest.Wait()
				if admitted != tt.want {
					t.Errorf("%d were admitted, want %d", admitted, tt.want)
				}
				close(release)
				<-done
				l.Wait()
			})
		})
	}
}

// A connection has maxAwaits requests wait for events, and all of them end with it.
func TestAwaitsOfAConnectionAreBounded(t *testing.T) {
	var a awaits
	stopped := 0
	for range maxAwaits {
		n, err := a.add()
		if err != nil {
			t.Fatal(err)
		}
		a.waits(n, func() { stopped++ })
	}
	if _, err := a.add(); !errors.Is(err, spool.ErrBusy) {
		t.Errorf("one more: %v", err)
	}
	a.remove(1)
	over, err := a.add()
	if err != nil {
		t.Error(err)
	}
	a.remove(over)
	a.waits(over, func() { t.Error("a wait that is over was ended") })
	if a.end(); stopped != maxAwaits-1 {
		t.Errorf("%d waits were ended, want %d", stopped, maxAwaits-1)
	}
}
