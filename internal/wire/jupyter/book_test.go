package jupyter

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// TestBook checks what the book remembers of cells, and that it is bounded.
func TestBook(t *testing.T) {
	b := newBook()
	data := func(v any) json.RawMessage {
		d, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	seq := spool.Seq(0)
	take := func(kind spool.Kind, turn spool.Seq, v any) spool.Seq {
		seq++
		b.take(&spool.Event{Seq: seq, Kind: kind, Turn: turn, Data: data(v)})
		return seq
	}
	cell := func(code string, number int) {
		turn := take(spool.KindInput, 0, spool.Said{ID: code, Kind: spool.InputCell, Data: data(spool.Cell{Code: code, Silent: number == 0})})
		if c := b.running(); c == nil || c.turn != turn {
			t.Fatalf("cell %q does not run", code)
		}
		if number == 6 {
			take(python.KindResult, turn, python.Display{Bundle: map[string]json.RawMessage{"text/plain": data(strings.Repeat("x", maxShown+1))}})
		}
		take(spool.KindDone, turn, spool.Done{Outcome: spool.TurnOK, ExecutionCount: number})
	}
	cell("silent", 0)
	for i := range maxCells + 5 {
		cell("x", i+1)
	}
	shown := b.shown()
	if len(shown) != maxCells || shown[0].number != 6 || b.last() != maxCells+5 || b.running() != nil {
		t.Errorf("the book has %d cells from %d to %d", len(shown), shown[0].number, b.last())
	}
	if got := len(shown[0].result); got != maxShown {
		t.Errorf("a result has %d bytes", got)
	}
	if c := b.stored(3); c == nil || c.number != 9 || !c.endedByItself() {
		t.Errorf("the fourth cell is %+v", c)
	}
	if list := b.named("7"); len(list) != 1 || list[0].number != 7 {
		t.Errorf("cell 7 is %v", list)
	}
	// The end of the log ends what runs.
	take(spool.KindInput, 0, spool.Said{ID: "last", Kind: spool.InputCell, Data: data(spool.Cell{Code: "while True: pass"})})
	last := b.running()
	b.end()
	<-last.done
	if last.outcome != spool.TurnCrashed || last.endedByItself() {
		t.Errorf("the last cell ended as %s", last.outcome)
	}
}
