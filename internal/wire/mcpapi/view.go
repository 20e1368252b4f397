package mcpapi

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/visible"
)

// RunView is what a tool returns about a run.
type RunView struct {
	Run     spool.RunID    `json:"run"`
	Name    string         `json:"name,omitempty"`
	State   spool.State    `json:"state"`
	Outcome *spool.Outcome `json:"outcome,omitempty"`
	// Why is what ended the wait, if the call waited.
	Why string `json:"why,omitempty"`
	// Next is the cursor: what comes after it was not shown.
	Next    spool.Seq   `json:"next"`
	Text    string      `json:"text"`
	Omitted *Omitted    `json:"omitted,omitempty"`
	Asks    []AskView   `json:"asks,omitempty"`
	Turn    spool.Seq   `json:"turn,omitempty"`
	Done    *spool.Done `json:"done,omitempty"`
	Images  int         `json:"images,omitempty"`

	info    *spool.Info
	note    string        // about the call
	content []mcp.Content // images and links
}

// Omitted is what the text leaves out.
type Omitted struct {
	Bytes int64     `json:"bytes"`
	Lines int64     `json:"lines"`
	From  spool.Seq `json:"from"` // the first event that has a part of it
	To    spool.Seq `json:"to"`
}

// AskView is a question that waits for an answer.
type AskView struct {
	Ask     spool.Seq `json:"ask"`
	Kind    string    `json:"kind"`
	Prompt  string    `json:"prompt"`
	Options []string  `json:"options,omitempty"`
	// Retype is whether the command must be typed again to allow it.
	Retype bool `json:"retype,omitempty"`
}

const (
	// maxPrompt is how many characters of a question are shown.
	maxPrompt = 500
	// maxAsks is how many questions are shown.
	maxAsks = 8
)

// result is the view as the result of a call.
func (v *RunView) result() (*mcp.CallToolResult, error) {
	data, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encode the result: %w", err)
	}
	result := &mcp.CallToolResult{Content: append([]mcp.Content{&mcp.TextContent{Text: v.shown()}}, v.content...)}
	if len(v.content) == 0 {
		result.StructuredContent = json.RawMessage(data)
	}
	return result, nil
}

// shown is the view as a model reads it: a line about the run, its output, and what the
// run asks.
func (v *RunView) shown() string {
	var b strings.Builder
	fmt.Fprintf(&b, "[%s, next %d]\n", v.headline(), v.Next)
	if v.note != "" {
		fmt.Fprintf(&b, "[%s]\n", v.note)
	}
	b.WriteString(v.Text)
	if v.Text != "" && !strings.HasSuffix(v.Text, "\n") {
		b.WriteByte('\n')
	}
	for _, a := range v.Asks {
		fmt.Fprintf(&b, "[waits for you: ask %d, %s %q", a.Ask, a.Kind, a.Prompt)
		if len(a.Options) > 0 {
			b.WriteString(": " + strings.Join(a.Options, ", "))
		}
		b.WriteString("]\n")
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// headline says how the run is: its id, name and state.
func (v *RunView) headline() string {
	text := string(v.Run)
	if v.Name != "" {
		text += " " + visible.Short(v.Name, 64)
	}
	switch {
	case v.Done != nil && v.Outcome == nil:
		text += fmt.Sprintf(", turn %d %s", v.Turn, v.Done.Outcome)
		if v.Done.Error != "" {
			text += ": " + visible.Short(v.Done.Error, 200)
		}
	case v.Outcome != nil:
		text += " " + visible.Short(v.Outcome.String(), 300) + " after " + age(v.info.Ended.Sub(v.info.Created))
		if v.State == spool.StateExited {
			text += ", and what it started holds its output open"
		}
	default:
		text += " running " + age(time.Since(v.info.Created))
		if v.Turn != 0 {
			text += fmt.Sprintf(", turn %d", v.Turn)
		}
	}
	if v.Images == 1 {
		text += ", 1 image"
	} else if v.Images > 1 {
		text += fmt.Sprintf(", %d images", v.Images)
	}
	if v.Why == whyTime || v.Why == whyQuiet || v.Why == whyMatch {
		text += ", " + map[string]string{whyTime: "waited in vain", whyQuiet: "quiet", whyMatch: "matched"}[v.Why]
	}
	return text
}

// age is a time for people.
func age(d time.Duration) string {
	switch {
	case d < 0:
		d = 0
	case d < time.Second:
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	if d < 2*time.Minute {
		return fmt.Sprintf("%.0f s", d.Seconds())
	}
	return d.Round(time.Second).String()
}

// view describes a run, without its output. The waiter is the one that waited for it; nil
// means that none did.
func (c *call) view(run *spool.Run, w *waiter, why string) (*RunView, error) {
	info, err := run.Info(c.ctx)
	if err != nil {
		return nil, err
	}
	v := &RunView{Run: info.ID, Name: info.Name, State: info.State, Outcome: info.Outcome, Why: why, Next: info.Last, Turn: info.Turn, info: &info}
	var open []spool.Seq
	if info.Asks != nil {
		open = slices.Clone(info.Asks.Open)
	}
	if w != nil && info.Outcome == nil { // what it saw may be newer
		for seq := range w.asks {
			if !slices.Contains(open, seq) {
				open = append(open, seq)
			}
		}
	}
	slices.Sort(open)
	for _, seq := range open[:min(len(open), maxAsks)] {
		ask, err := readAsk(c.ctx, run, seq)
		if err != nil {
			return nil, err
		}
		v.Asks = append(v.Asks, shownAsk(seq, ask))
	}
	return v, nil
}

// readAsk reads the ask that an event holds.
func readAsk(ctx context.Context, run *spool.Run, seq spool.Seq) (*spool.Ask, error) {
	page, err := run.Read(ctx, spool.Query{After: seq - 1, MaxBytes: 1})
	if err != nil {
		return nil, err
	}
	var ask spool.Ask
	if len(page.Events) == 0 || page.Events[0].Seq != seq || page.Events[0].Kind != spool.KindAsk {
		return nil, fmt.Errorf("ask %d of run %s: %w", seq, run.ID(), spool.ErrNotAsked)
	}
	if err := json.Unmarshal(page.Events[0].Data, &ask); err != nil {
		return nil, fmt.Errorf("ask %d of run %s: %w", seq, run.ID(), err)
	}
	return &ask, nil
}

// shownAsk is an ask as a model sees it.
func shownAsk(seq spool.Seq, ask *spool.Ask) AskView {
	a := AskView{Ask: seq, Kind: ask.Kind, Prompt: cut(ask.Prompt, maxPrompt), Retype: ask.RetypeText() != ""}
	if a.Prompt == "" {
		a.Prompt = ask.Name
	}
	for _, o := range ask.Options {
		a.Options = append(a.Options, o.ID)
	}
	return a
}

// cut shortens a text to a number of characters.
func cut(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	n := 0
	for i := range text {
		if n++; n == most {
			return text[:i] + "…"
		}
	}
	return text
}
