package access

import (
	"sync"
	"time"
)

// Rates limit what subjects do, however many connections they have. The owner of the
// machine is not limited.
type Rates struct {
	Starts   int // runs per second; five times as many at once
	Inputs   int // inputs and answers per second
	Requests int // others per second

	now func() time.Time // nil means [time.Now]

	mu  sync.Mutex
	one map[string]*[3]bucket // by name of the subject
}

// What [Rates] distinguish.
const (
	RateStarts = iota
	RateInputs
	RateRequests
)

const (
	startBurst  = 5 * time.Second // worth of starts at once
	maxSubjects = 4096            // whose rates are remembered
)

// Take counts a request of a subject. If there were too many, it returns how long the
// subject should wait.
func (r *Rates) Take(s *Subject, what int) time.Duration {
	if s.IsOwner() {
		return 0
	}
	rate, interval := float64(r.Requests), time.Second
	switch what {
	case RateStarts:
		interval = startBurst
		rate = float64(r.Starts) * startBurst.Seconds()
	case RateInputs:
		rate = float64(r.Inputs)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	if r.now != nil {
		now = r.now()
	}
	if r.one == nil {
		r.one = make(map[string]*[3]bucket)
	}
	buckets, ok := r.one[s.Name]
	if !ok {
		r.forget(now)
		buckets = new([3]bucket)
		r.one[s.Name] = buckets
	}
	return buckets[what].take(now, 1, rate, interval, false)
}

// forget makes room for another subject: those that did nothing for a while have all
// of their rate again.
func (r *Rates) forget(now time.Time) {
	if len(r.one) < maxSubjects {
		return
	}
	for name, buckets := range r.one {
		idle := true
		for i := range buckets {
			idle = idle && now.Sub(buckets[i].at) > startBurst
		}
		if idle {
			delete(r.one, name)
		}
	}
}
