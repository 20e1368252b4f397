// Package render turns events into text for a person. The command line, the
// servers and the console all use it, so that they show the same.
//
// A display has several MIME types. PNG and JPEG are images and JSON is data,
// both beside the text. The text is the Markdown form, else the plain one, else
// the HTML one converted to Markdown. A status display, which is meant for a
// program, has no text.
//
// Of an agent's run the text is the prompt, messages, actions with their outcome,
// duration and diffs, plans, asks with their answers, and the end of the turn.
//
// [Renderer] renders one event, [Transcript] the last state of a turn, and [Budget] a
// whole log within a number of tokens.
package render

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/narrate"
	"github.com/spool-run/spool/python"
)

// DefaultMaxText is the default limit of the text of one display, in bytes.
const DefaultMaxText = 1 << 20

// Blobs opens the blobs that events refer to. A [*spool.Run] implements it.
type Blobs interface {
	Blob(ctx context.Context, d spool.Digest) (io.ReadCloser, error)
}

// Renderer renders events. The zero value is usable; it shows placeholders for
// blobs instead of reading them.
type Renderer struct {
	Blobs Blobs
	// MaxText limits the text of one display; zero means DefaultMaxText.
	MaxText int
}

// Output is one event as text, images and data. The zero value means that the
// event shows nothing.
type Output struct {
	// Text has the exact bytes of the run's output, which need not be UTF-8.
	// Other text has no newline at its end.
	Text string
	// Markdown reports that the text is Markdown.
	Markdown bool
	// Aside reports that the text is a remark about the run, not text of the
	// run.
	Aside bool
	// Failure reports that the text describes an exception.
	Failure bool
	// Images and Data are shown beside the text.
	Images []Value
	Data   []Value
}

// Value is one form of a displayed value.
type Value struct {
	MIME  string
	Bytes []byte      // nil if the value is a blob
	Blob  *spool.Blob // nil if the value is in the log
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

// Size returns the size of the value in bytes.
func (v Value) Size() int64 {
	if v.Blob != nil {
		return v.Blob.Size
	}
	return int64(len(v.Bytes))
}

// Event renders one event. An error means that a blob could not be read; the
// output then contains a placeholder.
func (r Renderer) Event(ctx context.Context, e *spool.Event) (Output, error) {
	if narrate.IsAgent(e) || e.Kind == spool.KindInput && isDecision(e) {
		return agentEvent(e), nil
	}
	switch e.Kind {
	case spool.KindOutput:
		return Output{Text: string(e.Bytes)}, nil
	case python.KindDisplay, python.KindResult:
		var d python.Display
		if err := json.Unmarshal(e.Data, &d); err != nil {
			return aside("a display that could not be decoded"), nil
		}
		return r.Display(ctx, &d)
	case python.KindException:
		return exception(e.Data), nil
	case spool.KindAsk:
		var a spool.Ask
		switch err := json.Unmarshal(e.Data, &a); {
		case err != nil || a.Kind == spool.AskTool:
		case a.Kind == "network": // the program did not print it
			return aside(a.Prompt + ` "spool answer" answers with allow or deny.`), nil
		default:
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
		return Output{Text: "an exception that could not be decoded", Failure: true}
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

// done renders the end of a turn. It shows nothing if the turn succeeded or an
// exception already gave the reason.
func done(data json.RawMessage) Output {
	var d spool.Done
	if err := json.Unmarshal(data, &d); err != nil {
		return aside("the turn ended with an outcome that could not be decoded")
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

// truncation describes the missing part of a truncated event.
func truncation(data json.RawMessage) string {
	var t spool.Truncation
	if err := json.Unmarshal(data, &t); err != nil {
		return "part of the log is missing here"
	}
	if t.To > 0 {
		return fmt.Sprintf("events %d to %d have been deleted", t.From, t.To)
	}
	var dropped int64
	for _, n := range t.DroppedBytes {
		dropped += n
	}
	return fmt.Sprintf("%d bytes of output were dropped here, beyond the limit of %d", dropped, t.LimitBytes)
}
