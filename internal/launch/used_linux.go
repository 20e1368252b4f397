package launch

import (
	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
)

// Used returns what the leader used until it was reaped, with those of its
// descendants that were waited for. It is nil if the leader was not reaped or that
// is not known.
func (t *Tree) Used() *spool.ProcessUse {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.used
}

// usedBy returns what the kernel counted. Between fork and exec the leader shares
// the memory of this process, or has a copy of it, and the kernel counts that as
// its own: a peak that is not above ours says nothing about the leader.
func (t *Tree) usedBy(r *unix.Rusage) *spool.ProcessUse {
	u := &spool.ProcessUse{UserUs: r.Utime.Nano() / 1000, SystemUs: r.Stime.Nano() / 1000}
	if peak := r.Maxrss << 10; peak > t.floor && t.floor > 0 {
		u.PeakMemory = peak
	}
	return u
}

// peakMemory returns the most memory in bytes that this process held, or zero if
// that is not known.
func peakMemory() int64 {
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err != nil {
		return 0
	}
	return used.Maxrss << 10
}
