package torture

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
)

// testPlan is a run on pipes whose bytes are all known.
func testPlan() *Plan {
	return &Plan{Mark: "m", Run: 7, Seed: 42, Shape: Fast, Records: 40, Payload: 300, Children: 1, Exit: 3}
}

// written returns the records that the producers of a plan write to a stream,
// in turn.
func written(p *Plan, stream uint8) [][]byte {
	var all [][]byte
	for number := range uint32(p.records(int(stream))) {
		for producer := range uint8(p.Children + 1) {
			r := record{run: p.Run, producer: producer, stream: stream, kind: kindData, number: number + 1}
			r.payload = p.payload(nil, producer, stream, r.number)
			all = append(all, appendRecord(nil, &r))
		}
	}
	return all
}

// correctHistory is a correct history of a plan, in chunks that ignore the bounds of
// records.
func correctHistory(p *Plan) []event {
	r := rand.New(rand.NewPCG(1, 2))
	var events []event
	for i, name := range p.streams() {
		all := bytes.Join(written(p, uint8(i)), nil)
		for len(all) > 0 {
			n := min(len(all), 1+r.IntN(500))
			events = append(events, event{kind: spool.KindOutput, stream: name, bytes: all[:n]})
			all = all[n:]
		}
	}
	events = append(events, event{kind: spool.KindExited, code: p.code()}, event{kind: spool.KindClosed})
	return numbered(events)
}

func numbered(events []event) []event {
	for i := range events {
		events[i].seq = uint64(i + 1)
	}
	return events
}

func judge(p *Plan, events []event, v verdict) []Kind {
	h := newHistory(p)
	for _, e := range events {
		h.add(e)
	}
	var found []Kind
	for _, v := range h.finish(v) {
		if !slices.Contains(found, v.Kind) {
			found = append(found, v.Kind)
		}
	}
	return found
}

func TestCorrectHistory(t *testing.T) {
	p := testPlan()
	if found := judge(p, correctHistory(p), verdict{}); len(found) > 0 {
		t.Errorf("found %v in a correct history", found)
	}
}

// TestWrongHistories checks that every kind of error in a history is found
// and named.
func TestWrongHistories(t *testing.T) {
	stdout := func(p *Plan, records [][]byte) []event {
		return numbered([]event{
			{kind: spool.KindOutput, stream: spool.Stdout, bytes: bytes.Join(records, nil)},
			{kind: spool.KindOutput, stream: spool.Stderr, bytes: bytes.Join(written(p, 1), nil)},
			{kind: spool.KindExited, code: p.code()}, {kind: spool.KindClosed},
		})
	}
	for name, c := range map[string]struct {
		change func(p *Plan) []event
		v      verdict
		want   Kind
	}{
		"a record is missing": {change: func(p *Plan) []event {
			return stdout(p, slices.Delete(written(p, 0), 10, 11))
		}, want: Lost},
		"the last records are missing": {change: func(p *Plan) []event {
			return stdout(p, written(p, 0)[:30])
		}, want: Lost},
		"a record comes twice": {change: func(p *Plan) []event {
			all := written(p, 0)
			return stdout(p, slices.Insert(all, 11, all[10]))
		}, want: Repeated},
		"two records are swapped": {change: func(p *Plan) []event {
			all := written(p, 0)
			all[10], all[12] = all[12], all[10]
			return stdout(p, all)
		}, want: Reordered},
		"a bit is flipped": {change: func(p *Plan) []event {
			all := written(p, 0)
			all[10][headerLen-1] ^= 1
			return stdout(p, all)
		}, want: Corrupted},
		"a byte is missing": {change: func(p *Plan) []event {
			all := written(p, 0)
			all[10] = slices.Delete(all[10], 5, 6)
			return stdout(p, all)
		}, want: Corrupted},
		"newlines are changed": {change: func(p *Plan) []event {
			all := written(p, 0)
			for i := range all {
				all[i] = bytes.ReplaceAll(all[i], []byte("\n"), []byte("\r\n"))
			}
			return stdout(p, all)
		}, want: Corrupted},
		"a record of another run": {change: func(p *Plan) []event {
			other := *p
			other.Run++
			return stdout(p, slices.Insert(written(p, 0), 3, written(&other, 0)[0]))
		}, want: Invented},
		"a record on the wrong stream": {change: func(p *Plan) []event {
			return stdout(p, slices.Insert(written(p, 0), 3, written(p, 1)[0]))
		}, want: Invented},
		"an event is missing": {change: func(p *Plan) []event {
			return slices.Delete(correctHistory(p), 3, 4)
		}, want: Lost},
		"an event comes twice": {change: func(p *Plan) []event {
			events := correctHistory(p)
			return slices.Insert(events, 4, events[3])
		}, want: Repeated},
		"another code": {change: func(p *Plan) []event {
			events := correctHistory(p)
			events[len(events)-2].code = 4
			return events
		}, want: WrongExit},
		"another exit code": {change: func(p *Plan) []event {
			events := correctHistory(p)
			events[len(events)-2].code = 1
			return events
		}, v: verdict{killed: true}, want: WrongExit},
		"no exit": {change: func(p *Plan) []event {
			events := correctHistory(p)
			return numbered(slices.Delete(events, len(events)-2, len(events)-1))
		}, want: WrongExit},
		"two exits": {change: func(p *Plan) []event {
			events := correctHistory(p)
			return numbered(slices.Insert(events, len(events)-1, events[len(events)-2]))
		}, want: Repeated},
		"an unknown outcome without an excuse": {change: func(p *Plan) []event {
			events := correctHistory(p)
			return numbered(slices.Delete(events, len(events)-2, len(events)-1))
		}, v: verdict{failure: "unknown cause"}, want: Unknown},
		"no end": {change: func(p *Plan) []event {
			events := correctHistory(p)
			return events[:len(events)-1]
		}, want: NeverEnded},
		"output after closed": {change: func(p *Plan) []event {
			return numbered(append(correctHistory(p), event{kind: spool.KindOutput, stream: spool.Stdout}))
		}, want: Invented},
		"a fault removes the end without a notice": {change: func(p *Plan) []event {
			return stdout(p, written(p, 0)[:30])
		}, v: verdict{excused: true}, want: Lost},
	} {
		t.Run(name, func(t *testing.T) {
			p := testPlan()
			if found := judge(p, c.change(p), c.v); !slices.Contains(found, c.want) {
				t.Errorf("found %v, want %s", found, c.want)
			}
		})
	}
}

// TestExcusedHistories checks that an excused loss is accepted if the server
// reports it.
func TestExcusedHistories(t *testing.T) {
	p := testPlan()
	some := event{kind: spool.KindOutput, stream: spool.Stdout, bytes: bytes.Join(written(p, 0)[:30], nil)[:2000]}
	note := event{kind: spool.KindOutput, stream: spool.Stdout}
	exited, closed := event{kind: spool.KindExited, code: p.code()}, event{kind: spool.KindClosed}
	unknown := verdict{excused: true, failure: "the host died"}
	if found := judge(p, numbered([]event{some, note, closed}), unknown); len(found) > 0 {
		t.Errorf("found %v after an unknown end", found)
	}
	if found := judge(p, numbered([]event{some, exited, note, closed}), verdict{excused: true}); len(found) > 0 {
		t.Errorf("found %v after an exit and a reported loss", found)
	}
}

// TestKilledWorkerAndItsLedger checks that a killed worker may have written
// less, but that all records in its ledger are present.
func TestKilledWorkerAndItsLedger(t *testing.T) {
	p := testPlan()
	p.Children = 0
	l := &ledger{page: make([]byte, ledgerSize)}
	l.begin(0)
	l.wrote(0, 0, 5)
	history := func(n int) []event {
		return numbered([]event{
			{kind: spool.KindOutput, stream: spool.Stdout, bytes: bytes.Join(written(p, 0)[:n], nil)},
			{kind: spool.KindExited, code: killedCode}, {kind: spool.KindClosed},
		})
	}
	v := verdict{killed: true, ledger: l}
	for n, want := range map[int][]Kind{4: {Lost}, 5: nil, 6: nil, 7: {Invented}} {
		if found := judge(p, history(n), v); !slices.Equal(found, want) {
			t.Errorf("%d records of 5: found %v, want %v", n, found, want)
		}
	}
}

// TestInboxFindsTheEndInARead checks that the inbox infers the exit and the end
// from a read: they have no chunks, so a read skips their numbers.
func TestInboxFindsTheEndInARead(t *testing.T) {
	p := testPlan()
	events := correctHistory(p)
	n := len(events)
	code := p.code()
	for _, cursor := range []int{0, 1, n / 2, n - 2, n - 1} {
		in := newInbox(newHistory(p))
		for _, e := range events[:cursor] {
			in.push(e)
		}
		in.reconnect()
		in.push(events[n-1]) // arrives before the answer
		res := readResult{NextSeq: uint64(n + 1), Exited: true, ExitCode: &code, Closed: true}
		for _, e := range events[cursor:] {
			if e.kind == spool.KindOutput {
				res.Chunks = append(res.Chunks, chunk{e.seq, e.stream, e.bytes})
			}
		}
		if in.read(uint64(cursor), &res) {
			t.Errorf("cursor %d: there is still a gap", cursor)
		}
		if found := in.hist.finish(verdict{}); len(found) > 0 {
			t.Errorf("cursor %d: %v", cursor, found)
		}
	}
}

func TestInboxReportsEventsMissingFromARead(t *testing.T) {
	p := testPlan()
	events := correctHistory(p)
	in := newInbox(newHistory(p))
	in.push(events[0])
	res := readResult{NextSeq: 6, Chunks: []chunk{{3, events[2].stream, events[2].bytes}, {5, events[4].stream, events[4].bytes}}}
	in.read(1, &res)
	if found := in.hist.check.found; len(found) != 2 || found[0].Kind != Lost || found[1].Kind != Lost {
		t.Errorf("found %v", found)
	}
	in = newInbox(newHistory(p))
	in.push(events[0])
	in.push(events[0])
	if found := in.hist.check.found; len(found) != 1 || found[0].Kind != Repeated {
		t.Errorf("found %v after a repeated push", found)
	}
	in.read(1, &readResult{NextSeq: 1})
	if found := in.hist.check.found; len(found) != 2 || !strings.Contains(found[1].Detail, "ends at event 0") {
		t.Errorf("found %v after the log went back", found)
	}
}

func TestInputsAreAnsweredOnceInOrder(t *testing.T) {
	p := &Plan{Run: 1, Seed: 5, Shape: Echo, Records: 4, Payload: 20}
	answers := func(args ...uint32) []event {
		var b []byte
		for i, arg := range args {
			r := record{run: 1, kind: kindEcho, number: uint32(i + 1), arg: arg}
			if i == 0 {
				r.kind = kindReady
			}
			r.payload = p.payload(nil, 0, 0, r.number)
			b = appendRecord(b, &r)
		}
		return numbered([]event{{kind: spool.KindOutput, stream: spool.Stdout, bytes: b}, {kind: spool.KindExited}, {kind: spool.KindClosed}})
	}
	if found := judge(p, answers(0, 1, 2, 3, 4), verdict{acked: 4}); len(found) > 0 {
		t.Errorf("found %v", found)
	}
	for _, args := range [][]uint32{{0, 1, 1, 3, 4}, {0, 1, 3, 2, 4}, {0, 1, 2, 4}} {
		if found := judge(p, answers(args...), verdict{acked: 4}); !slices.Contains(found, BadInput) {
			t.Errorf("inputs answered %v: found %v", args, found)
		}
	}
}
