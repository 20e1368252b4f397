package keeper

import (
	"sync"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// firstUpdates matches the first updates of runs with the mirrors that wait for
// them. A keeper sends the first update of a run that this process has started
// without being asked, sometimes before the answer to the start. A mirror gets
// it on the goroutine that reads from the keeper, which saves waking another.
type firstUpdates struct {
	mu     sync.Mutex
	byRun  map[spool.RunID]*firstUpdate
	closed bool // the connection ended: no update will come
}

// firstUpdate is registered before the start and removed once its receiver has
// the update. It gets the update and the receiver in either order.
type firstUpdate struct {
	receiver updateReceiver // nil until the start was answered
	update   *record.Update // nil until it arrived
}

// updateReceiver is a [mirror].
type updateReceiver interface {
	// receiveFirst gets the update, or nil if none will come.
	receiveFirst(update *record.Update)
}

// register prepares for the first update of a run. It returns nil if another
// start of the same run is registered or the connection ended.
func (u *firstUpdates) register(id spool.RunID) *firstUpdate {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, taken := u.byRun[id]; taken || u.closed {
		return nil
	}
	if u.byRun == nil {
		u.byRun = make(map[spool.RunID]*firstUpdate)
	}
	f := new(firstUpdate)
	u.byRun[id] = f
	return f
}

// cancel removes what register returned, which may be nil.
func (u *firstUpdates) cancel(id spool.RunID, f *firstUpdate) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if f != nil && u.byRun[id] == f {
		delete(u.byRun, id)
	}
}

// bind has the first update go to a receiver, now or when it arrives.
func (u *firstUpdates) bind(id spool.RunID, f *firstUpdate, r updateReceiver) {
	u.mu.Lock()
	f.receiver = r
	update, done := f.update, f.update != nil || u.closed
	if done {
		delete(u.byRun, id)
	}
	u.mu.Unlock()
	if done {
		r.receiveFirst(update)
	}
}

// deliver passes an update to its receiver, or keeps it until there is one. It
// drops an update that is not registered.
func (u *firstUpdates) deliver(update *record.Update) {
	id := update.Info.ID
	var r updateReceiver
	u.mu.Lock()
	if f := u.byRun[id]; f != nil {
		if r = f.receiver; r == nil {
			f.update = update
		} else {
			delete(u.byRun, id)
		}
	}
	u.mu.Unlock()
	if r != nil {
		r.receiveFirst(update)
	}
}

// close tells all receivers that no update will come.
func (u *firstUpdates) close() {
	u.mu.Lock()
	u.closed = true
	var waiting []updateReceiver
	for id, f := range u.byRun {
		if f.receiver != nil {
			waiting = append(waiting, f.receiver)
			delete(u.byRun, id)
		}
	}
	u.mu.Unlock()
	for _, r := range waiting {
		r.receiveFirst(nil)
	}
}
