// Package render decides what somebody who reads text sees of an event. There
// is one such place so that the command line, the servers and the console show
// the same.
//
// A display comes in several forms. PNG and JPEG are images and JSON is data,
// both beside the text; the text is the Markdown form, else the plain one,
// else the HTML one made into Markdown. A display that tells a program what a
// helper did has no text at all.
//
// [Renderer] renders one event, [Transcript] the last state of a turn.
package render

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// DefaultMaxText bounds the text of one display.
const DefaultMaxText = 1 << 20

// Blobs opens the large values that events refer to. A [*spool.Run] does.
type Blobs interface {
	Blob(ctx context.Context, d spool.Digest) (io.ReadCloser, error)
}

// Renderer renders events. The zero value is usable, and names blobs instead
// of reading them.
type Renderer struct {
	Blobs Blobs
	// MaxText bounds the text of one display; zero means DefaultMaxText.
	MaxText int
}

// Output is what one event means to somebody who reads text. The zero value
// means that there is nothing to see.
type Output struct {
	// Text is as the run wrote it, whatever bytes that are; it has no line
	// end of its own unless it is output.
	Text string
	// Markdown says that the text is.
	Markdown bool
	// Aside says that the text is not the run's own, but about it.
	Aside bool
	// Failure says that the text is what an exception says.
	Failure bool
	// Images and Data are shown beside the text.
	Images []Value
	Data   []Value
}

// Value is one form of something that was displayed.
type Value struct {
	MIME  string
	Bytes []byte      // if it is in the log,
	Blob  *spool.Blob // and else where it is
}

// Open returns the content of a value.
func (v Value) Open(ctx context.Context, blobs Blobs) (io.ReadCloser, error) {
	if v.Blob == nil {
		return io.NopCloser(bytes.NewReader(v.Bytes)), nil
	}
	if blobs == nil {
		return nil, fmt.Errorf("open %s: %w: nowhere to read blobs from", v.Blob.Digest, spool.ErrUnsupported)
	}
	return blobs.Blob(ctx, v.Blob.Digest)
}

// Size is how many bytes the value has.
func (v Value) Size() int64 {
	if v.Blob != nil {
		return v.Blob.Size
	}
	return int64(len(v.Bytes))
}

// Event renders one event. An error means that a blob could not be read; the
// output then says what is missing.
func (r Renderer) Event(ctx context.Context, e *spool.Event) (Output, error) {
	switch e.Kind {
	case spool.KindOutput:
		return Output{Text: string(e.Bytes)}, nil
	case spool.KindDisplay, spool.KindResult:
		var d python.Display
		if err := json.Unmarshal(e.Data, &d); err != nil {
			return aside("something was displayed that cannot be read"), nil
		}
		return r.Display(ctx, &d)
	case spool.KindException:
		return exception(e.Data), nil
	case spool.KindAsk:
		var a spool.Ask
		if json.Unmarshal(e.Data, &a) == nil && a.Kind != spool.AskTool {
			return Output{Text: a.Prompt}, nil
		}
	case spool.KindNotice:
		var n spool.Notice
		if json.Unmarshal(e.Data, &n) == nil && n.Code != spool.NoticeAskClosed && n.Level != "debug" {
			return aside(n.Text), nil
		}
	case spool.KindTruncated:
		return aside(truncation(e.Data)), nil
	case spool.KindDone:
		return done(e.Data), nil
	}
	return Output{}, nil
}

func aside(text string) Output { return Output{Text: text, Aside: text != ""} }

func exception(data json.RawMessage) Output {
	var x python.Exception
	if err := json.Unmarshal(data, &x); err != nil {
		return Output{Text: "an exception that cannot be read", Failure: true}
	}
	if x.Printed {
		return Output{}
	}
	text := x.Traceback
	if text == "" {
		text = x.Name
		if x.Message != "" {
			text += ": " + x.Message
		}
	}
	return Output{Text: trimLineEnd(text), Failure: true}
}

// done says how a turn ended, unless that is to be seen: it went well, or an
// exception told why not.
func done(data json.RawMessage) Output {
	var d spool.Done
	if err := json.Unmarshal(data, &d); err != nil {
		return aside("the turn ended, nobody knows how")
	}
	switch d.Outcome {
	case spool.TurnOK, spool.TurnError:
		return Output{}
	}
	text := string(d.Outcome)
	if d.Error != "" {
		text += ": " + d.Error
	}
	return aside(text)
}

// truncation says what a truncated event stands for.
func truncation(data json.RawMessage) string {
	var t struct {
		spool.Gap
		spool.Truncation
	}
	if err := json.Unmarshal(data, &t); err != nil {
		return "some of the log is missing here"
	}
	if t.To > 0 {
		return fmt.Sprintf("events %d to %d are no longer there", t.From, t.To)
	}
	var dropped int64
	for _, n := range t.Dropped {
		dropped += n
	}
	return fmt.Sprintf("%d bytes of output were dropped here, beyond the limit of %d", dropped, t.Limit)
}
