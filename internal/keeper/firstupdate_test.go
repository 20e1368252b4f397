package keeper

import (
	"fmt"
	"sync"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
)

// receiver records what it receives.
type receiver struct{ got chan *record.Update }

func (r receiver) receiveFirst(u *record.Update) { r.got <- u }

// A receiver gets its update once, whether the update, the receiver or the end
// of the connection comes first.
func TestFirstUpdateOrders(t *testing.T) {
	update := &record.Update{Info: spool.Info{ID: "r"}}
	tests := []struct {
		name  string
		steps string // b: bind, d: deliver, c: close
		want  *record.Update
	}{
		{"update first", "db", update},
		{"receiver first", "bd", update},
		{"update twice", "bdd", update},
		{"close last", "bdc", update},
		{"no update", "bc", nil},
		{"close first", "cb", nil},
		{"update, then close", "dcb", update},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var u firstUpdates
			r := receiver{make(chan *record.Update, 3)}
			f := u.register("r")
			if f == nil || u.register("r") != nil {
				t.Fatal("register must accept the first start of a run only")
			}
			for _, step := range tt.steps {
				switch step {
				case 'b':
					u.bind("r", f, r)
				case 'd':
					u.deliver(update)
				case 'c':
					u.close()
				}
			}
			if got := <-r.got; got != tt.want || len(r.got) != 0 {
				t.Errorf("received %v and %d more, want %v", got, len(r.got), tt.want)
			}
			if len(u.byRun) != 0 {
				t.Errorf("%d updates are still registered", len(u.byRun))
			}
		})
	}
}

func TestFirstUpdateCancel(t *testing.T) {
	var u firstUpdates
	f := u.register("r")
	u.cancel("r", nil)
	if len(u.byRun) != 1 {
		t.Error("cancel of nil removed a start")
	}
	u.cancel("r", f)
	u.deliver(&record.Update{Info: spool.Info{ID: "r"}})
	if len(u.byRun) != 0 || f.update != nil {
		t.Error("a cancelled start got an update")
	}
	u.close()
	if u.register("r") != nil {
		t.Error("register after close")
	}
}

// TestFirstUpdateHammer has many runs bound and delivered concurrently, and the
// connection end in between.
func TestFirstUpdateHammer(t *testing.T) {
	var u firstUpdates
	var wg sync.WaitGroup
	for i := range 200 {
		id := spool.RunID(fmt.Sprint(i))
		f := u.register(id)
		r := receiver{make(chan *record.Update, 2)}
		wg.Go(func() {
			u.bind(id, f, r)
			if got := <-r.got; got != nil && got.Info.ID != id {
				t.Errorf("run %s got the update of %s", id, got.Info.ID)
			}
		})
		wg.Go(func() { u.deliver(&record.Update{Info: spool.Info{ID: id}}) })
	}
	wg.Go(u.close)
	wg.Wait()
	if len(u.byRun) != 0 {
		t.Errorf("%d updates are still registered", len(u.byRun))
	}
}
