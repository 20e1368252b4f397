package wasipy

import (
	"crypto/rand"
	"encoding/binary"
	"runtime"
	"time"

	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
)

// wasiCalls is all of WASI that the interpreter is linked against. What is not
// here does not exist for a guest.
var wasiCalls = []hostCall{
	{"args_get", "ii", "i", zero},
	{"args_sizes_get", "ii", "i", (*guestCall).noStrings},
	{"environ_get", "ii", "i", zero},
	{"environ_sizes_get", "ii", "i", (*guestCall).noStrings},
	{"clock_res_get", "ii", "i", (*guestCall).clockRes},
	{"clock_time_get", "iIi", "i", (*guestCall).clockTime},
	{"random_get", "ii", "i", (*guestCall).random},
	{"sched_yield", "", "i", func(*guestCall) uint64 { runtime.Gosched(); return 0 }},
	{"proc_exit", "i", "", (*guestCall).procExit},
	{"poll_oneoff", "iiii", "i", (*guestCall).poll},

	{"fd_advise", "iIIi", "i", zero},
	{"fd_allocate", "iII", "i", unsupported},
	{"fd_close", "i", "i", (*guestCall).fdClose},
	{"fd_datasync", "i", "i", (*guestCall).fdSync},
	{"fd_fdstat_get", "ii", "i", (*guestCall).fdStat},
	{"fd_fdstat_set_flags", "ii", "i", (*guestCall).fdSetFlags},
	{"fd_fdstat_set_rights", "iII", "i", zero},
	{"fd_filestat_get", "ii", "i", (*guestCall).fdFileStat},
	{"fd_filestat_set_size", "iI", "i", (*guestCall).fdSetSize},
	{"fd_filestat_set_times", "iIIi", "i", (*guestCall).fdSetTimes},
	{"fd_pread", "iiiIi", "i", (*guestCall).fdPread},
	{"fd_prestat_get", "ii", "i", (*guestCall).fdPrestat},
	{"fd_prestat_dir_name", "iii", "i", (*guestCall).fdPrestatName},
	{"fd_pwrite", "iiiIi", "i", (*guestCall).fdPwrite},
	{"fd_read", "iiii", "i", (*guestCall).fdRead},
	{"fd_readdir", "iiiIi", "i", (*guestCall).fdReadDir},
	{"fd_renumber", "ii", "i", (*guestCall).fdRenumber},
	{"fd_seek", "iIii", "i", (*guestCall).fdSeek},
	{"fd_sync", "i", "i", (*guestCall).fdSync},
	{"fd_tell", "ii", "i", (*guestCall).fdTell},
	{"fd_write", "iiii", "i", (*guestCall).fdWrite},

	{"path_create_directory", "iii", "i", (*guestCall).pathMkdir},
	{"path_filestat_get", "iiiii", "i", (*guestCall).pathStat},
	{"path_filestat_set_times", "iiiiIIi", "i", (*guestCall).pathSetTimes},
	{"path_link", "iiiiiii", "i", unsupported},
	{"path_open", "iiiiiIIii", "i", (*guestCall).pathOpen},
	{"path_readlink", "iiiiii", "i", (*guestCall).pathReadlink},
	{"path_remove_directory", "iii", "i", (*guestCall).pathRmdir},
	{"path_rename", "iiiiii", "i", (*guestCall).pathRename},
	{"path_symlink", "iiiii", "i", (*guestCall).pathSymlink},
	{"path_unlink_file", "iii", "i", (*guestCall).pathUnlink},

	{"sock_accept", "iii", "i", unsupported},
	{"sock_recv", "iiiiii", "i", unsupported},
	{"sock_send", "iiiii", "i", unsupported},
	{"sock_shutdown", "ii", "i", unsupported},
}

func zero(*guestCall) uint64        { return 0 }
func unsupported(*guestCall) uint64 { return uint64(vfs.ENOTSUP) }

// noStrings says that there are no arguments and no environment: those come
// with the script.
func (g *guestCall) noStrings() uint64 {
	return wrote(g.put32(g.u32(0), 0) && g.put32(g.u32(1), 0))
}

// The clocks of WASI.
const (
	clockRealtime = iota
	clockMonotonic
	clockProcess
	clockThread
)

func (g *guestCall) clockRes() uint64 {
	if g.u32(0) > clockThread {
		return uint64(vfs.EINVAL)
	}
	return wrote(g.put64(g.u32(1), 1))
}

func (g *guestCall) clockTime() uint64 {
	var t int64
	switch g.u32(0) {
	case clockRealtime:
		t = time.Now().UnixNano()
	case clockMonotonic:
		t = int64(g.monotonic())
	case clockProcess, clockThread:
		t = int64(g.now() - g.waited)
	default:
		return uint64(vfs.EINVAL)
	}
	return wrote(g.put64(g.u32(2), uint64(t)))
}

func (g *guestCall) random() uint64 {
	b := g.bytes(g.u32(0), g.u32(1))
	if b == nil {
		return uint64(vfs.EFAULT)
	}
	// In pieces, because a guest may ask for all of its memory.
	for len(b) > 0 {
		n := min(len(b), 1<<20)
		_, _ = rand.Read(b[:n]) // never fails
		b = b[n:]
		g.safepoint()
	}
	return 0
}

// safepoint is for calls that may take long.
func (g *guestCall) safepoint() {
	g.late(g.now())
	g.heedSignal(g.link.Pending())
	if g.interrupted {
		g.raise()
	}
}

func (g *guestCall) procExit() uint64 {
	panic(&stopped{code: int(int32(g.u32(0)))})
}

// The kinds of a subscription of poll_oneoff.
const (
	pollClock = iota
	pollRead
	pollWrite
)

const (
	subscriptionSize = 48
	eventSize        = 32
	maxSubscriptions = 1024
)

// poll waits for the first of several things: a time, or that a descriptor can
// be used. Files always can; what a read of standard input has to wait for, it
// waits for itself.
func (g *guestCall) poll() uint64 {
	in, out, n, count := g.u32(0), g.u32(1), g.u32(2), g.u32(3)
	if n == 0 || n > maxSubscriptions {
		return uint64(vfs.EINVAL)
	}
	subs, events := g.bytes(in, n*subscriptionSize), g.bytes(out, n*eventSize)
	if subs == nil || events == nil {
		return uint64(vfs.EFAULT)
	}
	soonest, first := time.Duration(-1), []byte(nil)
	ready := uint32(0)
	for s := subs; len(s) > 0; s = s[subscriptionSize:] {
		if s[8] != pollClock {
			ready = event(events, ready, s, 0)
		} else if d := g.until(s, 0); soonest < 0 || d < soonest {
			soonest, first = d, s
		}
	}
	if ready == 0 {
		slept := g.sleep(soonest)
		ready = event(events, ready, first, 0)
		for s := subs; len(s) > 0; s = s[subscriptionSize:] {
			if &s[0] != &first[0] && g.until(s, slept) <= 0 {
				ready = event(events, ready, s, 0)
			}
		}
	}
	return wrote(g.put32(count, ready))
}

// until is how long the clock of a subscription still has to go, after a
// sleep.
func (g *guestCall) until(s []byte, slept time.Duration) time.Duration {
	timeout := time.Duration(min(binary.LittleEndian.Uint64(s[24:]), 1<<62))
	switch {
	case s[40]&1 == 0: // relative
		return timeout - slept
	case binary.LittleEndian.Uint32(s[16:]) == clockRealtime:
		return timeout - time.Duration(time.Now().UnixNano())
	default:
		return timeout - g.monotonic()
	}
}

// event tells the guest that a subscription came true.
func event(events []byte, n uint32, s []byte, e vfs.Errno) uint32 {
	at := events[n*eventSize:]
	copy(at[:8], s[:8])
	binary.LittleEndian.PutUint16(at[8:], uint16(e))
	at[10] = s[8]
	clear(at[11:eventSize])
	return n + 1
}

// sleep lets the guest sleep, and still end in time. It ends early for an
// interrupt, which the guest sees as soon as its call has returned; to say more
// would be an error to its C library.
func (g *guestCall) sleep(d time.Duration) time.Duration {
	g.flush()
	if g.exceptionIsDue() {
		return 0
	}
	began := g.now()
	slept := time.Duration(0)
	for slept < d {
		piece := d - slept
		if g.deadline != 0 {
			piece = min(piece, max(g.deadline-g.now(), 0))
		}
		s := g.link.Wait(piece)
		now := g.now()
		slept = now - began
		g.late(now)
		g.heedSignal(s)
		if s == interrupt {
			g.raise()
			break
		}
	}
	g.waited += slept
	return slept
}

// raise lets the guest know of an interrupt while it is in a call of ours: the
// exception comes when the call has returned.
func (g *guestCall) raise() {
	g.next = 0 // so that this tick is one
	_, _ = g.call("sb_tick")
}
