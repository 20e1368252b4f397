package wasipy

import (
	"context"
	"encoding/binary"
	"slices"
	"sync"
	"time"
)

// maxAwake is how many interpreters that wait for their next script stay as
// they are. The one that waits longest is put to rest when there are more.
const maxAwake = 8

// kept is the interpreter of a context between two of its scripts: awake, or
// at rest.
type kept struct {
	machine *machine

	mu      sync.Mutex
	awake   *instance
	resting *resting
}

// resting is what is left of an interpreter at rest: how its memory differs
// from the image, and what the host holds for it. That is a small part of what
// the interpreter itself costs, and enough to have it again.
type resting struct {
	o           instanceOptions
	files       *descriptors
	start       time.Time
	interrupted bool
	delta       delta
}

// waiting are the interpreters that are awake and wait, the longest first.
type waiting struct {
	mu   sync.Mutex
	list []*kept
}

// add appends one, and returns the one that waits longest if they are too
// many now.
func (w *waiting) add(k *kept) *kept {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.list = append(w.list, k)
	if len(w.list) <= maxAwake {
		return nil
	}
	longest := w.list[0]
	w.list = slices.Delete(w.list, 0, 1)
	return longest
}

func (w *waiting) remove(k *kept) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if n := slices.Index(w.list, k); n >= 0 {
		w.list = slices.Delete(w.list, n, n+1)
	}
}

// keep keeps an interpreter until the next script of its context.
func (m *machine) keep(i *instance) *kept {
	clear(i.exports) // they have stacks of their own
	k := &kept{machine: m, awake: i}
	if longest := m.waiting.add(k); longest != nil {
		m.background.Go(longest.rest)
	}
	return k
}

// rest puts the interpreter to rest, unless it was taken in the meantime or has
// so much to itself that nothing is won.
func (k *kept) rest() {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := k.awake
	if i == nil {
		return
	}
	d, ok := i.difference()
	if !ok {
		return
	}
	k.resting = &resting{o: i.o, files: i.files, start: i.start, interrupted: i.interrupted, delta: d}
	k.awake = nil
	i.files = newDescriptors(0)
	k.machine.done(i, false)
}

// take returns the interpreter for the next script. It is not kept any more.
func (k *kept) take(ctx context.Context) (*instance, error) {
	k.machine.waiting.remove(k)
	k.mu.Lock()
	defer k.mu.Unlock()
	if i := k.awake; i != nil {
		k.awake = nil
		return i, nil
	}
	r := k.resting
	i, err := k.machine.spare(ctx, r.o)
	if err != nil {
		return nil, err
	}
	k.resting = nil
	i.files.closeAll()
	i.files, i.start, i.interrupted, i.renewed = r.files, r.start, r.interrupted, true
	r.delta.apply(i.cow.region)
	return i, nil
}

// close ends the interpreter.
func (k *kept) close() {
	k.machine.waiting.remove(k)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.awake != nil {
		k.awake.close()
	}
	if k.resting != nil {
		k.resting.files.closeAll()
	}
	k.awake, k.resting = nil, nil
}

// delta is a list of runs of bytes, each after its address and its length.
type delta []byte

const runHeader = 8

// grain is the smallest piece that is compared: a run is a multiple of it.
const grain = 8

// add appends what page, which is at an address, has that was does not have.
func (d delta) add(at uint64, page, was []byte) delta {
	for n := 0; n < len(page); {
		if equalWord(page[n:], was[n:]) {
			n += grain
			continue
		}
		from := n
		for n += grain; n < len(page) && !equalWord(page[n:], was[n:]); n += grain {
		}
		d = binary.LittleEndian.AppendUint32(d, uint32(at)+uint32(from))
		d = binary.LittleEndian.AppendUint32(d, uint32(n-from))
		d = append(d, page[from:n]...)
	}
	return d
}

func equalWord(a, b []byte) bool {
	return binary.LittleEndian.Uint64(a) == binary.LittleEndian.Uint64(b)
}

// apply makes a memory that is equal to the image what it was.
func (d delta) apply(memory []byte) {
	for len(d) > 0 {
		at, n := binary.LittleEndian.Uint32(d), binary.LittleEndian.Uint32(d[4:])
		copy(memory[at:], d[runHeader:runHeader+n])
		d = d[runHeader+n:]
	}
}
