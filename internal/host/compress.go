package host

import "time"

const (
	// firstCompress is when a host begins to compress what ended before it
	// was opened. It leaves the first seconds to the runs.
	firstCompress = 5 * time.Second
	// compressRest limits the processor time of compression: after each block
	// it rests this many times as long as the block took,
	compressRest = 3
	// but no longer than this: a block that took longer waited for a processor.
	longestRest = 200 * time.Millisecond
)

// compressOften compresses the logs of runs that ended some time ago, until the
// host closes.
func (h *Host) compressOften() {
	after := h.opts.Retention.Compress
	if after < 0 {
		return
	}
	var done time.Time // what ended before was looked at
	for wait := min(firstCompress, after); h.pause(wait); wait = max(after, DefaultSweepEvery) {
		before := time.Now().Add(-after)
		// Failures are retried when the next host opens the directory.
		_, _ = h.store.CompressEnded(h.ctx, done, before, h.restBetween(compressRest))
		done = before
	}
}

// restBetween returns a function that waits so many times as long as it took since
// its last call, up to longestRest.
func (h *Host) restBetween(times time.Duration) func() {
	since := time.Now()
	return func() {
		h.pause(min(times*time.Since(since), longestRest))
		since = time.Now()
	}
}
