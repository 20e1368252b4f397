package wasipy

import (
	"encoding/binary"
	"fmt"
	"runtime"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A window is memory that a worker and its parent share, for calls of the file
// system: most are small, and for those the way through the kernel takes longer
// than the call. A lane has one call at a time:
//
//	call    u32  number of the last call       written by the worker
//	done    u32  number of the last answered   written by the parent
//	looking u32  whether the parent looks here written by the parent
//	asleep  u32  whether the worker does not   written by the worker
//	request u32 length, bytes                  written by the worker
//	answer  u32 length, bytes                  written by the parent
//
// A side that does not look is notified with a frame on the lane. The parent copies
// before it looks at anything: the worker may write at any time.
const (
	windowCall    = 0
	windowDone    = 64 // words that different processors write are apart
	windowLooking = 128
	windowAsleep  = 192
	windowRequest = 256
	windowAnswer  = windowRequest + windowHalf
	windowHalf    = 4 << 10
	windowSize    = windowAnswer + windowHalf
	windowMost    = windowHalf - 4 // bytes of a request or an answer
)

type window struct {
	mem    []byte
	number uint32 // of the last call that this end knows of
}

// newWindow makes a window, and a descriptor for the other end.
func newWindow() (*window, int, error) {
	fd, err := unix.MemfdCreate("spool window", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return nil, -1, fmt.Errorf("make a window: %w", err)
	}
	// Were it cut, to look at it would end this process.
	err = unix.Ftruncate(fd, windowSize)
	if err == nil {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW|unix.F_SEAL_SEAL)
	}
	var w *window
	if err == nil {
		w, err = openWindow(fd)
	}
	if err != nil {
		unix.Close(fd)
		return nil, -1, fmt.Errorf("make a window: %w", err)
	}
	return w, fd, nil
}

// openWindow maps the window behind a descriptor, which the caller closes.
func openWindow(fd int) (*window, error) {
	mem, err := unix.Mmap(fd, 0, windowSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map a window: %w", err)
	}
	w := &window{mem: mem}
	// Not when the lane is closed: another goroutine may still read it.
	runtime.AddCleanup(w, func(mem []byte) { _ = unix.Munmap(mem) }, mem)
	return w, nil
}

func (w *window) word(at int) *uint32 { return (*uint32)(unsafe.Pointer(&w.mem[at])) }

func (w *window) put(at int, b []byte) {
	binary.LittleEndian.PutUint32(w.mem[at:], uint32(len(b)))
	copy(w.mem[at+4:], b)
}

// get appends what was put at a place to dst.
func (w *window) get(at int, dst []byte) []byte {
	n := min(binary.LittleEndian.Uint32(w.mem[at:]), windowMost)
	return append(dst, w.mem[at+4:at+4+int(n)]...)
}

// ask makes a call, if it is small enough. It says whether the parent has to be
// rung for.
func (w *window) ask(request []byte) (asked, ring bool) {
	if len(request) > windowMost {
		return false, false
	}
	w.put(windowRequest, request)
	w.number++
	publish(w.word(windowCall), w.number)
	return true, atomic.LoadUint32(w.word(windowLooking)) == 0
}

// answered says whether there is an answer to the last call.
func (w *window) answered() bool { return atomic.LoadUint32(w.word(windowDone)) == w.number }

// answer appends that to dst.
func (w *window) answer(dst []byte) []byte { return w.get(windowAnswer, dst) }

// sleep says whether the worker has to be rung for.
func (w *window) sleep(asleep bool) { setWord(w.word(windowAsleep), asleep) }

// pending says whether there is a call that the parent has not taken.
func (w *window) pending() bool { return atomic.LoadUint32(w.word(windowCall)) != w.number }

// take appends the request of the call to dst.
func (w *window) take(dst []byte) []byte {
	w.forget()
	return w.get(windowRequest, dst)
}

// forget drops a call that was not taken: its script is over, and the next one
// may have other files.
func (w *window) forget() { w.number = atomic.LoadUint32(w.word(windowCall)) }

// give answers the call, if the answer is small enough. It says whether the
// worker has to be rung for.
func (w *window) give(answer []byte) (given, ring bool) {
	if len(answer) > windowMost {
		return false, false
	}
	w.put(windowAnswer, answer)
	publish(w.word(windowDone), w.number)
	return true, atomic.LoadUint32(w.word(windowAsleep)) != 0
}

// look says whether the parent has to be rung for.
func (w *window) look(looking bool) { setWord(w.word(windowLooking), looking) }

func setWord(at *uint32, to bool) {
	var n uint32
	if to {
		n = 1
	}
	if atomic.LoadUint32(at) != n {
		publish(at, n)
	}
}

// publish writes a word before anything else is looked at: each side says
// something and then looks whether the other did, and one of them has to see
// it. A store would do, but for the race detector, which makes it a weaker one
// for memory that Go did not allocate.
func publish(at *uint32, to uint32) { atomic.SwapUint32(at, to) }
