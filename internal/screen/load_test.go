package screen

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
)

// memoryLog is a log of output events in memory.
type memoryLog struct {
	events []spool.Event
	bytes  int64
	pages  int
}

func (l *memoryLog) add(output string) { l.addBytes([]byte(output)) }

func (l *memoryLog) addBytes(b []byte) {
	l.events = append(l.events, spool.Event{Seq: spool.Seq(len(l.events) + 1), Kind: spool.KindOutput, Stream: spool.PTY, Bytes: b})
	l.bytes += int64(len(b))
}

// resize adds a resized event.
func (l *memoryLog) resize(was, to spool.Size) {
	data, err := json.Marshal(spool.Resized{Size: to, Was: was})
	if err != nil {
		panic(err)
	}
	l.events = append(l.events, spool.Event{Seq: spool.Seq(len(l.events) + 1), Kind: spool.KindResized, Data: data})
}

func (l *memoryLog) Read(_ context.Context, q spool.Query) (spool.Page, error) {
	l.pages++
	page := spool.Page{Next: q.After}
	for size := 0; int(page.Next) < len(l.events); {
		e := l.events[page.Next]
		if size += e.Size(); size > q.MaxBytes && len(page.Events) > 0 {
			break
		}
		page.Events, page.Next = append(page.Events, e), e.Seq
	}
	return page, nil
}

func (l *memoryLog) info() *spool.Info {
	return &spool.Info{
		Last: spool.Seq(len(l.events)), Bytes: l.bytes, TTY: true,
		Details: []byte(`{"terminal":{"rows":30,"cols":100}}`),
	}
}

// update is what a full-screen program writes at times: it changes a number.
func update(r *rand.Rand) string {
	var b strings.Builder
	for range 40 {
		fmt.Fprintf(&b, "\x1b[%d;%dH\x1b[3%dm%5d\x1b[m", 3+r.IntN(27), 40+r.IntN(50), r.IntN(8), r.IntN(100000))
	}
	return b.String()
}

const begin = "\x1b[?1049h\x1b[?1h\x1b=\x1b[?2004h\x1b[?1000h\x1b[?1006h\x1b[?25l\x1b[H\x1b[2Jlabel\x1b[2;1Hanother label"

// The work of Load does not grow with the log: with 100 MB it reads the end and
// the beginning.
func TestLoadReadsTheEnd(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	text := []byte(update(r))
	small, large := text[:400], bytes.Repeat(text, 64<<10/len(text))
	for _, tt := range []struct {
		name  string
		chunk func(i int) []byte
	}{
		{"small events", func(int) []byte { return text }},
		{"large events", func(int) []byte { return large }},
		{"small events last", func(i int) []byte {
			if i < 1500 {
				return large
			}
			return small
		}},
		{"large events last", func(i int) []byte {
			if i < 50_000 {
				return small
			}
			return large
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			log := &memoryLog{}
			log.add(begin)
			for i := 0; log.bytes < 100<<20; i++ {
				log.addBytes(tt.chunk(i))
			}
			v, err := Load(t.Context(), log, log.info())
			if err != nil {
				t.Fatal(err)
			}
			if v.Read > 8*Window || log.pages > 100 {
				t.Errorf("read %d bytes in %d pages", v.Read, log.pages)
			}
			if v.Exact {
				t.Error("the screen is said to be exact")
			}
			// The modes are those of the beginning.
			if _, _, visible := v.Cursor(); visible || !v.Alternate() || !v.modes.is(2004) || !v.modes.is(1006) || !v.modes.keypad {
				t.Errorf("the modes are %+v", v.modes)
			}
			log.add("\x1b[H\x1b[2Jredrawn")
			log.add("\x1b[3;1Hafter")
			if v, err = Load(t.Context(), log, log.info()); err != nil {
				t.Fatal(err)
			}
			if rows := v.Rows(); !v.Exact || rows[0] != "redrawn" || rows[2] != "after" || !v.Alternate() {
				t.Errorf("after the program drew all, exact is %v and the rows are %q", v.Exact, rows)
			}
		})
	}
}

// What was drawn long ago is in the screen that Replay returns, and so is what
// comes afterwards.
func TestReplay(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	log, whole := &memoryLog{}, New(30, 100)
	log.add(begin)
	for log.bytes < 2*Window {
		log.add(update(r))
	}
	v, err := Replay(t.Context(), log, log.info())
	if err != nil {
		t.Fatal(err)
	}
	last := v.Last
	log.add(update(r))
	if err := v.Advance(t.Context(), log, last+1); err != nil {
		t.Fatal(err)
	}
	for _, e := range log.events {
		_, _ = whole.Write(e.Bytes)
	}
	if diff := cmp.Diff(state(whole), state(v.Screen)); diff != "" || !v.Exact || v.Last != last+1 {
		t.Errorf("exact is %v, the last event %d, and the screen differs: %s", v.Exact, v.Last, diff)
	}
}

// A screen that is loaded at any event, and painted, shows the same as a
// terminal that got everything: nothing is lost or doubled at the border.
func TestLoadBorder(t *testing.T) {
	for seed := range uint64(100) {
		r := rand.New(rand.NewPCG(seed, 3))
		log, whole := &memoryLog{}, New(30, 100)
		for range 1 + r.IntN(20) {
			var output []byte
			for range r.IntN(10) {
				output = append(output, pieces[r.IntN(len(pieces))]...)
			}
			if n := len(output); n > 1 { // events end within sequences
				output = slices.Concat(output[:n/2], output[n/2:n-r.IntN(2)])
			}
			log.add(string(output))
			_, _ = whole.Write(output)
		}
		info := log.info()
		info.Last = spool.Seq(r.IntN(len(log.events) + 1))
		v, err := Load(t.Context(), log, info)
		if err != nil {
			t.Fatal(err)
		}
		painted := New(30, 100)
		_, _ = painted.Write(v.Paint(30, 100))
		for _, e := range log.events[v.Last:] {
			_, _ = painted.Write(e.Bytes)
		}
		if !v.Exact || v.Last != info.Last || !cmp.Equal(painted.Rows(), whole.Rows()) {
			t.Fatalf("seed %d: exact is %v, and after event %d the screens differ: %s", seed, v.Exact, v.Last, cmp.Diff(whole.Rows(), painted.Rows()))
		}
	}
}

// Plain output tells all of the screen once it has filled it.
func TestScrolledIsExact(t *testing.T) {
	log := &memoryLog{}
	for i := 0; log.bytes < 2*Window; i++ {
		log.add(fmt.Sprintf("line %d of a build\r\n", i))
	}
	v, err := Load(t.Context(), log, log.info())
	if err != nil {
		t.Fatal(err)
	}
	if rows := v.Rows(); !v.Exact || rows[28] != fmt.Sprintf("line %d of a build", len(log.events)-1) {
		t.Errorf("exact is %v, and the rows are %q", v.Exact, rows)
	}
}

func BenchmarkLoad100MB(b *testing.B) {
	r := rand.New(rand.NewPCG(1, 1))
	log := &memoryLog{}
	log.add(begin)
	for log.bytes < 100<<20 {
		log.add(update(r))
	}
	for b.Loop() {
		v, err := Load(b.Context(), log, log.info())
		if err != nil {
			b.Fatal(err)
		}
		_ = v.Paint(30, 100)
	}
}
