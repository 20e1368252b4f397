package render_test

import (
	"context"
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
	"github.com/spool-run/spool/render"
)

// events are those of a cell that shows its progress and then a table.
var events = []spool.Event{
	{Seq: 2, Turn: 1, Kind: spool.KindOutput, Stream: spool.Stderr, Bytes: []byte("10 %\r")},
	{Seq: 3, Turn: 1, Kind: spool.KindOutput, Stream: spool.Stderr, Bytes: []byte("100 %\n")},
	{Seq: 4, Turn: 1, Kind: python.KindDisplay, Data: []byte(`{"text/html":"<b>done</b>","text/plain":"done"}`)},
}

// A renderer shows each event.
func ExampleRenderer_Event() {
	for _, e := range events {
		out, err := render.Renderer{}.Event(context.Background(), &e)
		if err != nil {
			panic(err)
		}
		fmt.Printf("%q\n", out.Text)
	}
	// Output:
	// "10 %\r"
	// "100 %\n"
	// "done"
}

// A transcript is what a person sees in the end, for the prompt of a model.
func ExampleTranscript() {
	var t render.Transcript
	for _, e := range events {
		if err := t.Add(context.Background(), &e); err != nil {
			panic(err)
		}
	}
	fmt.Println(t.Text())
	// Output:
	// 100 %
	// done
}
