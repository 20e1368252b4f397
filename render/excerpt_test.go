package render

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/lens"
)

func TestTokens(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "a": 1, "word": 1, "words": 2, "two words": 3, "12": 1, "1234": 2, "{}": 1, "a: 1": 2, "é": 1, "日本語": 3, "😀": 2, "line\n": 2,
	} {
		if got := Tokens(text); got != want {
			t.Errorf("Tokens(%q) = %d, want %d", text, got, want)
		}
	}
}

// outputOf returns a log that writes text in one event.
func outputOf(text string) []spool.Event {
	return []spool.Event{{Seq: 1, Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: []byte(text)}}
}

// fetch is how the command fetches events.
func fetch(from, to spool.Seq) string { return fmt.Sprintf("get %d %d", from-1, to) }

// excerptOf reads a log within a budget, and checks the excerpt.
func excerptOf(t *testing.T, events []spool.Event, tokens int) Excerpt {
	t.Helper()
	read := func() (*excerpt, Excerpt) {
		b := Budget{Tokens: tokens, Fetch: fetch}
		x, err := b.excerpt(spool.Seq(len(events)))
		if err != nil {
			t.Fatal(err)
		}
		for i := range events {
			if err := x.event(context.Background(), &events[i]); err != nil {
				t.Fatal(err)
			}
		}
		got, err := x.finish()
		if err != nil {
			t.Fatal(err)
		}
		return x, got
	}
	x, got := read()
	if _, again := read(); again.Text != got.Text {
		t.Errorf("the same log gave another excerpt:\n%s\n%s", got.Text, again.Text)
	}
	if got.Tokens > tokens || got.Tokens != Tokens(got.Text) {
		t.Errorf("an excerpt of %d tokens, and the budget is %d:\n%s", got.Tokens, tokens, got.Text)
	}
	var all []lens.Line
	keep := func(l *lens.Line) error {
		line := *l
		line.Text = slices.Clone(l.Text)
		all = append(all, line)
		return nil
	}
	var lines lens.Lines
	for i := range events {
		e := &events[i]
		text := e.Bytes
		if o, ok := e.Outcome(); ok {
			text = []byte("[" + o.String() + "]")
		}
		if len(text) == 0 {
			continue
		}
		if err := lines.Add(e, text, keep); err != nil {
			t.Fatal(err)
		}
	}
	if err := lines.End(keep); err != nil {
		t.Fatal(err)
	}
	// Every line of the log is shown, or in exactly one omission.
	at := 0
	take := func(o Omission) {
		t.Helper()
		if at+o.Lines > len(all) {
			t.Fatalf("%+v after line %d of %d", o, at, len(all))
		}
		from, to, size := all[at].Seq, all[at].Last, 0
		for _, l := range all[at : at+o.Lines] {
			from, to, size = min(from, l.Seq), max(to, l.Last), size+len(l.Text)
		}
		if from != o.From || to != o.To || size != o.Bytes {
			t.Errorf("%+v, want seq %d to %d and %d bytes", o, from, to, size)
		}
		at += o.Lines
	}
	for l := x.end.next; ; l = l.next {
		if l.before.Lines > 0 {
			take(l.before)
		}
		if l == &x.end {
			break
		}
		for _, same := range all[at : at+l.here.Lines] {
			if x.budget.shortLine(plain(string(same.Text)), x.limit/8) != l.text {
				t.Errorf("line %q is shown as %q", same.Text, l.text)
			}
		}
		take(l.here)
	}
	if at != len(all) || got.Lines != len(all) {
		t.Errorf("%d of %d lines are shown or left out; the excerpt says %d", at, len(all), got.Lines)
	}
	return got
}

func TestExcerptOfAShortLogIsTheLog(t *testing.T) {
	got := excerptOf(t, outputOf("one\ntwo\n\x1b[31mthree\x1b[0m\n10%\r20%\rdone\n"), 200)
	if got.Text != "one\ntwo\nthree\ndone\n" || got.Omitted != nil || got.Lines != 4 {
		t.Errorf("%+v", got)
	}
	// It may fill the budget.
	text := strings.Repeat("abcdefg\nhijklmn\n", 100)
	if got := excerptOf(t, outputOf(text), Tokens(text)); got.Text != text {
		t.Errorf("%d of %d tokens:\n%s", got.Tokens, Tokens(text), got.Text)
	}
}

func TestRepeatedLinesAreFolded(t *testing.T) {
	got := excerptOf(t, outputOf("start\n"+strings.Repeat("waiting\n", 5000)+"end\n"), 200)
	if got.Text != "start\nwaiting (×5000)\nend\n" || got.Omitted != nil {
		t.Errorf("%+v", got)
	}
}

func TestExcerptKeepsWhatMatters(t *testing.T) {
	var events []spool.Event
	for i := range 5000 {
		text := fmt.Sprintf("step %d of 5000 took %d ms\n", i, i%7)
		switch i {
		case 2000:
			text += "Traceback (most recent call last):\n  File \"x.py\", line 1\n    call()\nValueError: bad input\n"
		case 3000:
			text += "warning: disk is almost full\n"
		case 4000:
			text += "something quite different\n"
		}
		events = append(events, spool.Event{Seq: spool.Seq(i + 1), Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: []byte(text)})
	}
	events = append(events, spool.Event{Seq: 5001, Kind: spool.KindExited, Data: []byte(`{"code":3}`)})
	got := excerptOf(t, events, 600)
	for _, want := range []string{
		"step 0 of 5000", "step 4999 of 5000", "Traceback (most recent call last):\n  File \"x.py\", line 1\n    call()\nValueError: bad input\n",
		"warning: disk is almost full\n", "something quite different\n", "[exited 3]\n",
	} {
		if !strings.Contains(got.Text, want) {
			t.Errorf("the excerpt lacks %q", want)
		}
	}
	first := got.Omitted[0]
	if notice := fmt.Sprintf("… %d lines left out (seq %d–%d): get %d %d\n", first.Lines, first.From, first.To, first.From-1, first.To); !strings.Contains(got.Text, notice) {
		t.Errorf("the excerpt lacks %q", notice)
	}
	if t.Failed() {
		t.Log(got.Text)
	}
}

func TestBudgetTooSmall(t *testing.T) {
	if _, err := (Budget{Tokens: 10}).excerpt(100); !errors.Is(err, spool.ErrInvalid) {
		t.Error(err)
	}
	if _, err := (Budget{Tokens: -1}).excerpt(100); !errors.Is(err, spool.ErrInvalid) {
		t.Error(err)
	}
}

func TestLongLinesAreShortened(t *testing.T) {
	got := excerptOf(t, outputOf(strings.Repeat("x", 300_000)+"\n"), 10_000)
	if !strings.HasPrefix(got.Text, strings.Repeat("x", maxExcerptLine)+"…(+") {
		t.Errorf("%.3000s", got.Text)
	}
}

// FuzzExcerpt checks that an excerpt is within its budget, names exactly what it left
// out, and is the same each time, for any output in any parts.
func FuzzExcerpt(f *testing.F) {
	f.Add([]byte("one\ntwo\nerror: three\n"), uint64(1), 0)
	f.Add([]byte(strings.Repeat("line 1\nline 2\nwarning\n", 300)), uint64(2), 100)
	f.Add([]byte(strings.Repeat("日本語\n", 400)), uint64(3), 1)
	f.Add([]byte(strings.Repeat("\n", 5000)+strings.Repeat("x", 9000)), uint64(4), 17)
	f.Fuzz(func(t *testing.T, text []byte, seed uint64, tokens int) {
		r := rand.New(rand.NewPCG(seed, 0))
		var events []spool.Event
		for len(text) > 0 {
			n := min(len(text), 1+r.IntN(200))
			stream := spool.Stdout
			if r.IntN(3) == 0 {
				stream = spool.Stderr
			}
			events = append(events, spool.Event{Seq: spool.Seq(len(events) + 1), Kind: spool.KindOutput, Stream: stream, Bytes: text[:n]})
			text = text[n:]
		}
		excerptOf(t, events, 100+(tokens&0x7fffffff)%2000)
	})
}
