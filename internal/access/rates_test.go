package access

import (
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

func requestTo(t *testing.T, url string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(url, "https") {
		r.TLS = new(tls.ConnectionState)
	}
	return r
}

// TestRates checks what a subject may do at once and per second, and that others and
// the owner are not concerned.
func TestRates(t *testing.T) {
	now := time.Unix(1000, 0)
	r := &Rates{Starts: 20, Inputs: 500, Requests: 200, now: func() time.Time { return now }}
	alice := &Subject{Name: "alice"}
	for _, tt := range []struct {
		name              string
		what              int
		burst, perSecond  int
		waitNoLongerThan  time.Duration
		waitNoShorterThan time.Duration
	}{
		{"starts", RateStarts, 100, 20, 51 * time.Millisecond, 49 * time.Millisecond},
		{"inputs", RateInputs, 500, 500, 3 * time.Millisecond, time.Millisecond},
		{"requests", RateRequests, 200, 200, 6 * time.Millisecond, 4 * time.Millisecond},
	} {
		take := func(s *Subject) (n int, wait time.Duration) {
			for ; n < 10_000; n++ {
				if wait = r.Take(s, tt.what); wait > 0 {
					break
				}
			}
			return n, wait
		}
		n, wait := take(alice)
		if n != tt.burst || wait > tt.waitNoLongerThan || wait < tt.waitNoShorterThan {
			t.Errorf("%s: %d at once, then a wait of %s", tt.name, n, wait)
		}
		now = now.Add(time.Second)
		if n, _ := take(alice); n != tt.perSecond {
			t.Errorf("%s: %d in a second", tt.name, n)
		}
		if n, _ := take(&Subject{Name: "bob"}); n != tt.burst {
			t.Errorf("%s: another subject has %d", tt.name, n)
		}
		if n, _ := take(Owner()); n != 10_000 {
			t.Errorf("%s: the owner has %d", tt.name, n)
		}
	}
	for i := range 2 * maxSubjects {
		r.Take(&Subject{Name: fmt.Sprint(i)}, RateRequests)
		now = now.Add(time.Second)
	}
	if len(r.one) > maxSubjects {
		t.Errorf("%d subjects are remembered", len(r.one))
	}
}

// TestRefuser checks how many failures of an address, and of all, have answers of
// their own, and that a valid token always has.
func TestRefuser(t *testing.T) {
	path := t.TempDir() + "/" + TokenFileName
	secret := create(t, path, Token{Name: "a"})
	const most, total = 10, 100
	throttle := NewRefuser(openTokens(t, path), most, total)
	now := time.Unix(1000, 0)
	throttle.now = func() time.Time { return now }
	attempt := func(addr, token string) (status int, wait time.Duration) {
		_, err := throttle.Authenticate(from(addr, token))
		var refusal *Refusal
		if errors.As(err, &refusal) {
			return refusal.Status, refusal.RetryAfter
		}
		return http.StatusOK, 0
	}
	for i := range most {
		if status, wait := attempt("1.2.3.4:5", "x"); status != http.StatusUnauthorized || wait != 0 {
			t.Errorf("failure %d: %d after %s", i, status, wait)
		}
	}
	var waits []time.Duration
	for range 8 {
		status, wait := attempt("1.2.3.4:6", "x")
		if status != http.StatusTooManyRequests {
			t.Errorf("a further failure: %d", status)
		}
		waits = append(waits, wait/time.Second)
	}
	if got := fmt.Sprint(waits); got != fmt.Sprint([]time.Duration{1, 2, 4, 8, 16, 32, 60, 60}) {
		t.Errorf("waits %s", got)
	}
	if status, _ := attempt("1.2.3.4:7", secret); status != http.StatusOK {
		t.Errorf("a valid token from there: %d", status)
	}
	for i := throttle.total; i < total; i++ {
		if status, _ := attempt(fmt.Sprintf("5.6.7.%d:1", i), "x"); status != http.StatusUnauthorized {
			t.Errorf("failure %d of all: %d", i, status)
		}
	}
	if status, wait := attempt("9.9.9.9:1", "x"); status != http.StatusTooManyRequests || wait != time.Second {
		t.Errorf("a failure of a new address after %d: %d after %s", total, status, wait)
	}
	if status, _ := attempt("9.9.9.9:1", secret); status != http.StatusOK {
		t.Errorf("a valid token after that: %d", status)
	}
	now = now.Add(FailureWindow + time.Second)
	if status, _ := attempt("1.2.3.4:5", "x"); status != http.StatusUnauthorized {
		t.Errorf("a minute later: %d", status)
	}
}
