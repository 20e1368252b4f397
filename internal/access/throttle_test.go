package access

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// from is a request with a token from an address.
func from(addr, token string) *http.Request {
	r := request(token)
	r.RemoteAddr = addr
	return r
}

func TestThrottleSlowsFailures(t *testing.T) {
	path := filepath.Join(t.TempDir(), TokenFileName)
	secret := create(t, path, Token{Name: "a"})
	throttle := NewThrottle(openTokens(t, path))
	now := time.Unix(1000, 0)
	throttle.now = func() time.Time { return now }
	var waits []time.Duration
	throttle.wait = func(_ *http.Request, d time.Duration) { waits = append(waits, d) }
	attempt := func(addr, token string, want int) {
		t.Helper()
		_, err := throttle.Authenticate(from(addr, token))
		var refusal *Refusal
		if errors.As(err, &refusal); err == nil && want != 0 || err != nil && (refusal == nil || refusal.Status != want) {
			t.Errorf("%s: %v, want %d", addr, err, want)
		}
	}
	for range FreeFailures {
		attempt("1.2.3.4:5", "x", http.StatusUnauthorized)
	}
	if len(waits) > 0 {
		t.Errorf("the first failures wait: %v", waits)
	}
	for range 8 {
		attempt("1.2.3.4:6", "x", http.StatusUnauthorized)
	}
	want := []time.Duration{100e6, 200e6, 400e6, 800e6, 1600e6, 3200e6, 5e9, 5e9}
	if !slices.Equal(waits, want) {
		t.Errorf("waits %v, want %v", waits, want)
	}
	waits = nil
	attempt("1.2.3.4:7", secret, 0)                    // the same source, with a token
	attempt("1.2.3.5:5", "x", http.StatusUnauthorized) // another source
	attempt("[2001:db8::1]:5", "x", http.StatusUnauthorized)
	now = now.Add(FailureWindow + time.Second)
	attempt("1.2.3.4:5", "x", http.StatusUnauthorized) // later
	if len(waits) > 0 {
		t.Errorf("waits %v", waits)
	}
	for range FreeFailures { // addresses of one IPv6 network are one source
		attempt(fmt.Sprintf("[2001:db8::%x]:5", len(waits)+2), "x", http.StatusUnauthorized)
	}
	attempt("[2001:db8::ffff]:5", "x", http.StatusUnauthorized)
	if len(waits) == 0 {
		t.Error("addresses of one network are different sources")
	}
}

// The answers that wait are bounded, and so is what is remembered.
func TestThrottleIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), TokenFileName)
	create(t, path, Token{Name: "a"})
	throttle := NewThrottle(openTokens(t, path))
	release := make(chan struct{})
	waiting := make(chan struct{}, MaxWaitingTotal)
	throttle.wait = func(*http.Request, time.Duration) { waiting <- struct{}{}; <-release }
	var wg sync.WaitGroup
	status := func(addr string) int {
		var refusal *Refusal
		_, err := throttle.Authenticate(from(addr, "x"))
		if !errors.As(err, &refusal) {
			return 0
		}
		return refusal.Status
	}
	sources := MaxWaitingTotal / MaxWaiting
	addr := func(i int) string { return fmt.Sprintf("10.0.%d.%d:1", i/256, i%256) }
	for i := range sources + 1 {
		for range FreeFailures {
			if got := status(addr(i)); got != http.StatusUnauthorized {
				t.Fatal(got)
			}
		}
		if i == sources {
			break
		}
		for range MaxWaiting {
			wg.Go(func() {
				if got := status(addr(i)); got != http.StatusUnauthorized {
					t.Error(got)
				}
			})
			<-waiting
		}
		if got := status(addr(i)); got != http.StatusTooManyRequests {
			t.Errorf("one more of a source: %d", got)
		}
	}
	if got := status(addr(sources)); got != http.StatusTooManyRequests {
		t.Errorf("one more in total: %d", got)
	}
	close(release)
	wg.Wait()
	for i := range 2 * maxSources {
		status(addr(i))
	}
	if n := len(throttle.sources); n > maxSources || n != throttle.recent.Len() || throttle.waiting != 0 {
		t.Errorf("%d sources, %d waiting", n, throttle.waiting)
	}
}

// Wrong tokens by the thousands do not slow a good client, not even one with the
// same address.
func TestWrongTokensDoNotSlowGoodClients(t *testing.T) {
	path := filepath.Join(t.TempDir(), TokenFileName)
	secret := create(t, path, Token{Name: "a"})
	throttle := NewThrottle(openTokens(t, path))
	const attempts, samples = 10_000, 500
	measure := func() time.Duration {
		took := make([]time.Duration, samples)
		for i := range took {
			before := time.Now()
			if _, err := throttle.Authenticate(from("127.0.0.1:1", secret)); err != nil {
				t.Fatal(err)
			}
			took[i] = time.Since(before)
		}
		slices.Sort(took)
		return took[samples/2]
	}
	quiet := measure()
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var left atomic.Int64
	left.Store(attempts)
	for range 2 * MaxWaiting {
		wg.Go(func() {
			for left.Add(-1) >= 0 {
				if _, err := throttle.Authenticate(from("127.0.0.1:2", "wrong").WithContext(ctx)); err == nil {
					t.Error("a wrong token is accepted")
				}
			}
		})
	}
	rounds := []time.Duration{measure()}
	for left.Load() > 0 {
		rounds = append(rounds, measure())
	}
	cancel() // ends the answers that wait
	wg.Wait()
	slices.Sort(rounds)
	busy := rounds[len(rounds)/2]    // in some rounds other programs had the processors
	if busy > 20*quiet+time.Second { // one that is slowed like the others waits for 5 s
		t.Errorf("a good token takes %v, and %v without wrong ones", busy, quiet)
	}
	t.Logf("a good token takes %v, and %v without wrong ones", busy, quiet)
}
