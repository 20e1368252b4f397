package cli

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"
)

// TestIdleExit checks that a server is not idle while a request or a stream lasts.
func TestIdleExit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		idle := newIdleExit(time.Minute)
		told := func() bool {
			synctest.Wait()
			select {
			case <-idle.C():
				return true
			default:
				return false
			}
		}
		h := idle.over(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
			time.Sleep(time.Hour)
			if told() {
				t.Error("idle during a request")
			}
			idle.count(1) // a stream that goes on
		}))
		time.Sleep(59 * time.Second)
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
		time.Sleep(time.Hour)
		if told() {
			t.Error("idle during a stream")
		}
		idle.count(-1)
		time.Sleep(59 * time.Second)
		if told() {
			t.Error("idle too early")
		}
		time.Sleep(time.Second)
		if !told() {
			t.Error("not idle after a minute")
		}
	})
}
