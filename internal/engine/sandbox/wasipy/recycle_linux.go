package wasipy

import (
	"encoding/binary"
	"os"
	"slices"
	"sync"
	"unsafe"
)

// Bounds of what is used again. Beyond them a new mapping is cheaper, or holds
// on to less.
const (
	recyclePages = 1024      // that an interpreter has for itself
	recycleFuel  = 2_000_000 // work of one script: who did much may have gone deep
	recycleTimes = 200
)

// Bits of the kernel's page map.
const (
	pagePresent = 1 << 63
	pageSwapped = 1 << 62
	pageOfFile  = 1 << 61
)

// pagemap is the kernel's own account of which pages a mapping has to itself.
// It is opened before a worker gives up opening things.
var pagemap = sync.OnceValue(func() *os.File {
	f, err := os.Open("/proc/self/pagemap")
	if err != nil {
		return nil // then nothing is used again
	}
	return f
})

// ownPages are the addresses of the pages that an interpreter has to itself. It
// does not say if they are many, or if its memory is larger than the image.
func (i *instance) ownPages() ([]uint64, bool) {
	im, f := i.machine.image, pagemap()
	if f == nil || i.cow.size != im.Size {
		return nil, false
	}
	entries := make([]byte, im.Size/pageSize*8)
	start := uint64(uintptr(unsafe.Pointer(&i.cow.region[0]))) / pageSize * 8
	if n, err := f.ReadAt(entries, int64(start)); err != nil || n != len(entries) {
		return nil, false
	}
	var own []uint64
	for page := range im.Size / pageSize {
		e := binary.LittleEndian.Uint64(entries[8*page:])
		if e&(pagePresent|pageSwapped) == 0 || e&pageOfFile != 0 {
			continue // untouched, or only read
		}
		if len(own) == recyclePages {
			return nil, false
		}
		own = append(own, page*pageSize)
	}
	return own, true
}

// recycle makes an interpreter whose script is over what it was before: equal
// to the image in every byte. That is cheaper than a new one, because what it
// only read is still mapped. It says whether that went well; if not, the
// interpreter can only be closed.
func (i *instance) recycle() bool {
	if i.spent > recycleFuel || i.recycled >= recycleTimes {
		return false
	}
	own, ok := i.ownPages()
	if !ok {
		return false
	}
	for _, at := range own {
		copy(i.cow.region[at:at+pageSize], i.machine.image.page(at))
	}
	i.files.closeAll()
	i.files = newDescriptors(i.o.files)
	i.recycled++
	i.renewed, i.interrupted, i.reply, i.lastMode = false, false, nil, 0
	i.link, i.fs = nil, nil
	return true
}

// difference is how the memory of an interpreter differs from the image, if
// that is not much. The stack is left out: between two calls it is empty.
func (i *instance) difference() (delta, bool) {
	own, ok := i.ownPages()
	if !ok {
		return nil, false
	}
	var d delta
	for _, at := range own {
		if at >= stackSize {
			d = d.add(at, i.cow.region[at:at+pageSize], i.machine.image.page(at))
		}
	}
	return slices.Clip(d), true
}
