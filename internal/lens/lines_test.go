package lens

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/spool-run/spool"
)

func TestLines(t *testing.T) {
	long := bytes.Repeat([]byte("x"), MaxLine+3)
	events := []spool.Event{
		{Stream: spool.Stdout, Bytes: []byte("one\ntw")},
		{Stream: spool.Stderr, Bytes: []byte("between\r\n\nrest")},
		{Kind: "result", Bytes: []byte("42\n43")},
		{Stream: spool.Stdout, Bytes: []byte("o\n")},
		{Stream: spool.Stdout, Bytes: long[:MaxLine]},
		{Stream: spool.Stdout, Bytes: []byte("\n")},
		{Stream: spool.Stdout, Bytes: append(long, '\n')},
	}
	var lines Lines
	var got []string
	each := func(l *Line) error {
		text := string(l.Text)
		if len(text) > 20 {
			text = fmt.Sprintf("%d bytes", len(text))
		}
		got = append(got, fmt.Sprintf("%d+%d-%d+%d %s%s", l.Seq, l.Offset, l.Last, l.End, l.Stream, " "+text))
		return nil
	}
	for i := range events {
		e := &events[i]
		e.Seq = spool.Seq(i + 1)
		if e.Kind == "" {
			e.Kind = spool.KindOutput
		}
		if err := lines.Add(e, e.Bytes, each); err != nil {
			t.Fatal(err)
		}
	}
	if err := lines.End(each); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"1+0-1+3 stdout one", "2+0-2+8 stderr between", "2+9-2+9 stderr ", "3+0-3+2  42", "3+3-3+5  43", "1+4-4+1 stdout two",
		fmt.Sprintf("5+0-6+0 stdout %d bytes", MaxLine), fmt.Sprintf("7+0-7+%d stdout %d bytes", MaxLine, MaxLine),
		fmt.Sprintf("7+%d-7+%d stdout xxx", MaxLine, MaxLine+3), "2+10-2+14 stderr rest",
	}
	if !slices.Equal(got, want) {
		t.Errorf("lines:\n got %q\nwant %q", got, want)
	}
}
