package natsd

import (
	"context"
	"sync"
	"sync/atomic"
	"time"
	_ "unsafe" // for go:linkname

	"github.com/nats-io/nats-server/v2/server/ats"
)

// accessTick is how often a server updates the time that its files compare with to drop what
// they cache, for ten seconds, and what has expired.
const accessTick = time.Second

// NATS has a goroutine that updates that time ten times a second, which is a third of all
// that wakes up an idle control node. accessDone ends it, and accessTime is the time.
var (
	//go:linkname accessDone github.com/nats-io/nats-server/v2/server/ats.done
	accessDone chan struct{}
	//go:linkname accessTime github.com/nats-io/nats-server/v2/server/ats.utime
	accessTime atomic.Int64
)

// ownAccessTime ends the goroutine of NATS for as long as this process lives. NATS starts
// it for the first that registers and ends it when the last one has left; this
// registration is never given back, so that NATS does neither again.
var ownAccessTime = sync.OnceFunc(func() {
	ats.Register()
	select {
	case accessDone <- struct{}{}:
	default: // this version of NATS has no such channel
	}
})

// keepAccessTime updates the time until the context ends.
func keepAccessTime(ctx context.Context) {
	accessTime.Store(time.Now().UnixNano()) // it may be that of the end of an earlier server
	tick := time.NewTicker(accessTick)
	defer tick.Stop()
	for {
		select {
		case now := <-tick.C:
			accessTime.Store(now.UnixNano())
		case <-ctx.Done():
			return
		}
	}
}
