package cluster_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
	"github.com/nats-io/nats.go"

	"github.com/spool-run/spool"
)

// checkHistory checks that the answers about every run are those of one machine that
// does one thing after another: a run has one owner, from its start on. It returns what
// is wrong.
func checkHistory(history []attempt) (wrong []string) {
	model := porcupine.Model{
		Init: func() any { return "" },
		Step: func(state, input, output any) (bool, any) {
			owner, answer := state.(string), output.(string)
			if owner != "" {
				return answer == owner, owner
			}
			// Nobody knows of a start without an answer, until somebody sees the run.
			return answer != "" || !input.(bool), answer
		},
	}
	byRun := make(map[spool.RunID][]porcupine.Operation)
	for _, a := range history {
		byRun[a.run] = append(byRun[a.run], porcupine.Operation{ClientId: a.client, Input: a.start, Call: int64(a.call), Output: a.owner, Return: int64(a.answer)})
	}
	for run, ops := range byRun {
		if porcupine.CheckOperationsTimeout(model, ops, time.Minute) == porcupine.Illegal {
			wrong = append(wrong, fmt.Sprintf("no order explains the answers about run %s: %+v", run, ops))
		}
	}
	return wrong
}

// TestHistory checks that the checker of histories finds what it looks for.
func TestHistory(t *testing.T) {
	at := func(client int, start bool, call, answer time.Duration, owner string) attempt {
		return attempt{client: client, run: "r", start: start, call: call, answer: answer, owner: owner}
	}
	for _, tt := range []struct {
		what    string
		history []attempt
		bad     bool
	}{
		{"one owner", []attempt{at(0, false, 0, 1, ""), at(0, true, 2, 5, "x/1"), at(1, true, 3, 6, "x/1"), at(1, false, 7, 8, "x/1")}, false},
		{"a start without an answer was seen", []attempt{at(0, false, 0, 1, ""), at(0, false, 2, 3, "x/1")}, false},
		{"two owners", []attempt{at(0, true, 0, 5, "x/1"), at(1, true, 3, 6, "y/1")}, true},
		{"two processes", []attempt{at(0, true, 0, 1, "x/1"), at(1, true, 3, 6, "x/2")}, true},
		{"lost", []attempt{at(0, true, 0, 1, "x/1"), at(1, false, 2, 3, "")}, true},
	} {
		if wrong := checkHistory(tt.history); (len(wrong) > 0) != tt.bad {
			t.Errorf("%s: the checker says %q", tt.what, wrong)
		}
	}
}

// nodeWatch sees every write of a lease.
type nodeWatch struct {
	mu     sync.Mutex
	epochs map[string]leaseSeen
	wrong  []string
	writes int
}

// leaseSeen is the newest lease of a node.
type leaseSeen struct {
	id    string
	epoch uint64
	lost  bool
}

// watchNodes watches the leases of all nodes until the end of the test.
func watchNodes(t *testing.T, url string) *nodeWatch {
	t.Helper()
	w := &nodeWatch{epochs: make(map[string]leaseSeen)}
	nc, err := nats.Connect(url, nats.MaxReconnects(-1), nats.ReconnectWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	if _, err := nc.Subscribe("spool.v1.saw.node.*", w.saw); err != nil {
		t.Fatal(err)
	}
	return w
}

// saw takes a write: an epoch never comes back, belongs to one machine, and is over
// once it was fenced.
func (w *nodeWatch) saw(m *nats.Msg) {
	var rec struct {
		Node, ID, State string
		Epoch           uint64
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err := json.Unmarshal(m.Data, &rec); err != nil {
		w.wrong = append(w.wrong, err.Error())
		return
	}
	w.writes++
	old, lost := w.epochs[rec.Node], rec.State == "lost"
	switch {
	case rec.Epoch < old.epoch:
		w.wrong = append(w.wrong, fmt.Sprintf("node %s went from epoch %d to %d", rec.Node, old.epoch, rec.Epoch))
	case rec.Epoch == old.epoch && old.lost && !lost:
		w.wrong = append(w.wrong, fmt.Sprintf("node %s renewed epoch %d after it was fenced", rec.Node, rec.Epoch))
	case rec.Epoch == old.epoch && rec.ID != old.id:
		w.wrong = append(w.wrong, fmt.Sprintf("two machines are node %s in epoch %d", rec.Node, rec.Epoch))
	}
	w.epochs[rec.Node] = leaseSeen{rec.ID, rec.Epoch, lost}
}

// check fails the test if a lease was wrong.
func (w *nodeWatch) check(t *testing.T) {
	t.Helper()
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, wrong := range w.wrong {
		t.Error(wrong)
	}
	if w.writes == 0 {
		t.Error("no lease was seen")
	}
}
