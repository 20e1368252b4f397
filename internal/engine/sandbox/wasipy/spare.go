package wasipy

import (
	"context"
	"runtime"
	"time"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/spare"
)

// spareMemory is the memory limit of interpreters that are made ahead. Most
// limits are not above it.
const spareMemory = guest.DefaultMemory

// maxSpares is how many unused interpreters are kept.
var maxSpares = runtime.GOMAXPROCS(0) + 1

// newSpares returns the pool of interpreters that are a fresh copy of the
// image, so that a script does not wait for its own to be mapped.
func (m *machine) newSpares() spare.Pool[*instance] {
	return spare.Pool[*instance]{
		High: 1, Max: maxSpares,
		Make: func() (*instance, error) {
			return m.instantiate(context.Background(), instanceOptions{memory: spareMemory})
		},
		Discard: (*instance).close,
	}
}

// spare returns an interpreter that is a fresh copy of the image.
func (m *machine) spare(ctx context.Context, o instanceOptions) (*instance, error) {
	if o.memory <= spareMemory {
		if i, ok := m.spares.Take(); ok {
			i.own(o)
			return i, nil
		}
	}
	return m.instantiate(ctx, o)
}

// own gives an interpreter the bounds of its user.
func (i *instance) own(o instanceOptions) {
	i.o = o
	i.files.max = o.files
	i.cow.limit = max(o.memory, i.cow.size)
	i.start = time.Now()
}

// done takes an interpreter back from its user. One that is lost is closed.
func (m *machine) done(i *instance, lost bool) {
	if !lost && uint64(len(i.cow.region)) == spareMemory && i.recycle() {
		m.spares.Give(i)
		return
	}
	// The files now; unmapping much memory takes long and is not waited for.
	i.files.closeAll()
	m.background.Go(i.close)
}
