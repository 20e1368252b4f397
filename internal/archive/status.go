package archive

import (
	"encoding/json"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

// Status is how shipping gets on. The shipper keeps it in a file, too, for other
// processes.
type Status struct {
	Archive string    `json:"archive"`
	PID     int       `json:"pid"`
	Updated time.Time `json:"updated"`
	// ShippedRuns and ShippedBytes count since the shipper started.
	ShippedRuns   int       `json:"shipped_runs"`
	ShippedBytes  int64     `json:"shipped_bytes"`
	PendingRuns   int       `json:"pending_runs"`
	PendingBytes  int64     `json:"pending_bytes"`
	PendingSince  time.Time `json:"pending_since,omitzero"` // when the oldest of them was pinned
	Full          bool      `json:"full,omitempty"`         // no more may wait
	Conflicts     int       `json:"conflicts,omitempty"`    // runs of whose ids the archive has another
	Conflict      string    `json:"conflict,omitempty"`     // the last one
	Failures      int       `json:"failures"`               // since the last success
	FailuresTotal int       `json:"failures_total"`
	Failure       string    `json:"failure,omitempty"` // the last one; empty after a success
	FailedAt      time.Time `json:"failed_at,omitzero"`
	SucceededAt   time.Time `json:"succeeded_at,omitzero"`
	PrunedRuns    int       `json:"pruned_runs,omitempty"`
}

// ReadStatus returns the status that the shipper of a state directory wrote last. The
// error is [fs.ErrNotExist] if there was none.
func ReadStatus(state string) (Status, error) {
	var st Status
	b, err := os.ReadFile(filepath.Join(state, stateName, statusName))
	if err != nil {
		return st, err
	}
	return st, json.Unmarshal(b, &st)
}

// Status returns how shipping gets on.
func (s *Shipper) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status
}

const (
	// reportEvery is how often the file of the status is written, at most.
	reportEvery = time.Second
	// idleReportEvery is how often it is written although nothing has changed.
	idleReportEvery = time.Minute
)

// report writes the status to its file: what has changed, at once if now is set and
// otherwise not too often.
func (s *Shipper) report(now bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	since := time.Since(s.wrote)
	if s.status == s.reported && since < idleReportEvery || !now && since < reportEvery {
		return
	}
	s.wrote = time.Now()
	s.status.Updated, s.status.PID = s.wrote.UTC().Round(0), os.Getpid()
	b, err := json.Marshal(s.status)
	if err == nil {
		err = replaceFile(filepath.Join(s.opts.Dir, stateName, statusName), b)
	}
	s.reported = s.status
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		s.log.Warn("the status of the archive cannot be written", "err", err)
	}
}

// count notes which runs wait.
func (s *Shipper) count(waiting []*pendingRun) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.PendingRuns, s.status.PendingBytes, s.status.PendingSince = len(waiting), 0, time.Time{}
	for i, p := range waiting {
		s.status.PendingBytes += p.Size
		if i == 0 {
			s.status.PendingSince = p.pinned.UTC()
		}
	}
}

// add notes a run that begins to wait.
func (s *Shipper) add(bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.status.PendingSince.IsZero() {
		s.status.PendingSince = time.Now().UTC().Round(0)
	}
	s.status.PendingRuns++
	s.status.PendingBytes += bytes
}

func (s *Shipper) setFull(full bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Full = full
}

func (s *Shipper) setConflicts(n int, last string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.status.Conflicts = n
	if last != "" || n == 0 {
		s.status.Conflict = last
	}
}

// uploaded counts bytes that arrived.
func (s *Shipper) uploaded(n int64) {
	s.mu.Lock()
	s.status.ShippedBytes += n
	s.mu.Unlock()
	s.report(false)
}

// succeeded notes that the archive has a run.
func (s *Shipper) succeeded(size int64) {
	now := time.Now().UTC().Round(0)
	s.mu.Lock()
	if s.status.Failure != "" {
		s.log.Info("archiving goes on", "archive", s.status.Archive, "failures", s.status.Failures)
	}
	s.status.ShippedRuns++
	s.status.PendingRuns--
	s.status.PendingBytes -= size
	s.status.Failure, s.status.Failures, s.status.SucceededAt = "", 0, now
	s.mu.Unlock()
	s.report(false)
}

// failed notes a failure and returns how long to wait: longer after each, and not the
// same for all machines.
func (s *Shipper) failed(err error) time.Duration {
	now := time.Now().UTC().Round(0)
	s.mu.Lock()
	s.status.Failures++
	s.status.FailuresTotal++
	s.status.Failure, s.status.FailedAt = err.Error(), now
	n := s.status.Failures
	s.mu.Unlock()
	s.retry = min(max(2*s.retry, firstRetry), lastRetry)
	wait := s.retry/2 + rand.N(s.retry/2+1)
	s.log.Warn("archiving fails", "archive", s.objects.String(), "err", err, "failures", n, "next", wait)
	return wait
}
