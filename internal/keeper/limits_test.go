package keeper

import (
	"testing"
	"testing/synctest"
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
