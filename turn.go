package spool

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"time"
)

// Said is the payload of an input event: an input that the run accepted.
// The seq of the event names the turn it began. Data is absent if the input
// was secret.
type Said struct {
	ID   string          `json:"id,omitempty"`
	Kind InputKind       `json:"kind"`
	Data json.RawMessage `json:"data,omitempty"`
}

// Cell is the payload of an [InputCell]: code to run in the state that the
// cells before it left.
type Cell struct {
	Code string `json:"code"`
	// Silent runs it without a result, without history and without
	// counting it.
	Silent bool `json:"silent,omitempty"`
	// NoHistory keeps it out of the history and does not count it.
	NoHistory bool `json:"no_history,omitempty"`
	// Keep lets later cells find the code in the list In, and the result in the
	// dictionary Out, at the number of the cell.
	Keep bool `json:"keep,omitempty"`
	// TimeoutMs ends the turn after so long. Zero means the run's own limit.
	TimeoutMs int64 `json:"timeout_ms,omitempty"`
	// File is the path of the script that the code was read from. The code then
	// runs as "python FILE" would run it: __file__, tracebacks and the first
	// entry of sys.path are those of the script, and the value of a last
	// expression is no result.
	File string `json:"file,omitempty"`
	// Module is the name of a module to run instead of the code, as "python -m
	// MODULE" would run it. If File is set, it is a directory or a zip archive with
	// the module, which is then "__main__".
	Module string `json:"module,omitempty"`
	// Args becomes sys.argv. Without any, sys.argv stays as it is.
	Args []string `json:"args,omitempty"`
}

// Prompt is the payload of an [InputPrompt]: what to tell an agent.
type Prompt struct {
	Text string `json:"text"`
	// Images are shown to the agent with the text, which may then be empty. An
	// agent that can be shown none refuses them with [ErrUnsupported].
	Images []PromptImage `json:"images,omitempty"`
	// TimeoutMs ends the turn after so long. Zero means the run's own limit.
	TimeoutMs int64 `json:"timeout_ms,omitempty"`
}

// PromptImage is a picture in a [Prompt]. The sender gives Bytes. The log holds a blob
// instead, with the names that [Blob] has in JSON, so [Run.Blob] opens it.
type PromptImage struct {
	// MIME is image/png, image/jpeg, image/gif or image/webp.
	MIME   string `json:"mime"`
	Bytes  []byte `json:"base64,omitempty"`
	Digest Digest `json:"blob,omitempty"`
	Size   int64  `json:"size_bytes,omitempty"`
}

// TurnOutcome is how a turn ended.
type TurnOutcome string

// The ways a turn can end. Turns of an agent can also end in those of package
// agent.
const (
	TurnOK          TurnOutcome = "ok"
	TurnError       TurnOutcome = "error"       // it raised, or said that it failed
	TurnInterrupted TurnOutcome = "interrupted" // an interrupt ended it
	TurnCancelled   TurnOutcome = "cancelled"   // it or its run was stopped
	TurnTimeout     TurnOutcome = "timeout"     // its time was up
	TurnRefused     TurnOutcome = "refused"     // it may not do what it needed to do
	TurnKilled      TurnOutcome = "killed"      // it had to be killed, or never began
	TurnCrashed     TurnOutcome = "crashed"     // what ran it died
)

// Done is the payload of a done event, which ends a turn.
type Done struct {
	ID      string      `json:"id,omitempty"` // of the input that began it
	Outcome TurnOutcome `json:"outcome"`
	// Error says why it did not end well, for a person.
	Error string `json:"error,omitempty"`
	// ErrorClass is a short name to branch on.
	ErrorClass string `json:"error_class,omitempty"`
	// ExecutionCount is the number of a cell, as a person counts them.
	ExecutionCount int `json:"execution_count,omitempty"`
	// ExitCode is that of a script or a process that did the turn.
	ExitCode *int `json:"exit_code,omitempty"`
	// Signal ended that process.
	Signal string `json:"signal,omitempty"`
	// EndedBy says which limit or request ended it: timeout, memory,
	// output, kill, fuel, interrupt.
	EndedBy string `json:"ended_by,omitempty"`
	// LimitMs is the time limit that ended it.
	LimitMs int64 `json:"limit_ms,omitempty"`
	// StoppedWith is the strongest means that was needed to end it.
	StoppedWith string `json:"stopped_with,omitempty"`
	DurationMs  int64  `json:"duration_ms,omitempty"`
	// Answer is what an agent said last.
	Answer string `json:"answer,omitempty"`
	// Stderr is the end of what the process said there.
	Stderr string `json:"stderr,omitempty"`
	// Usage is what it cost, as the engine reports it.
	Usage json.RawMessage `json:"usage,omitempty"`
	// Resume is what continues the conversation in another run.
	Resume string `json:"resume,omitempty"`
}

// Turn is a handle to a turn of a run. Like a [Run] it holds no state of its
// own.
type Turn struct {
	run      *Run
	seq      Seq
	repeated bool
}

// Exec runs a cell after the cells that were sent before it. It returns once the
// run accepted the cell; [Turn.Wait] waits for its end. The id makes Exec
// idempotent: if the run has accepted that id before, Exec returns the turn of
// then and runs nothing. An empty id always begins a new turn.
func (r *Run) Exec(ctx context.Context, id string, c Cell) (*Turn, error) {
	return r.begin(ctx, id, InputCell, c)
}

// Prompt gives an agent a prompt. It returns once the run accepted the prompt;
// [Turn.Wait] waits for the end of the turn. The id is as in [Run.Exec].
func (r *Run) Prompt(ctx context.Context, id string, p Prompt) (*Turn, error) {
	return r.begin(ctx, id, InputPrompt, p)
}

func (r *Run) begin(ctx context.Context, id string, kind InputKind, payload any) (*Turn, error) {
	data, err := json.Marshal(payload)
	if err != nil {
		return nil, fmt.Errorf("encode %s: %w", kind, err)
	}
	receipt, err := r.Send(ctx, Input{ID: id, Kind: kind, Data: data})
	if err != nil {
		return nil, err
	}
	return &Turn{r, receipt.Seq, receipt.Repeated}, nil
}

// Turn returns a handle to the turn that the input event of that seq began.
func (r *Run) Turn(seq Seq) *Turn { return &Turn{run: r, seq: seq} }

// Repeated reports whether the run had seen the id of the input before, so that
// the turn is the one that it began then.
func (t *Turn) Repeated() bool { return t.repeated }

// Seq names the turn.
func (t *Turn) Seq() Seq { return t.seq }

// Events yields the events of the turn and ends after its done event. If the
// run ends before that, it yields the event that ended the run and stops. To
// resume in the middle of a turn, use [Run.Events] and compare [Event.Turn].
func (t *Turn) Events(ctx context.Context) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for e, err := range t.run.Events(ctx, t.seq) {
			if err != nil {
				yield(e, err)
				return
			}
			_, ended := e.Outcome()
			if e.Turn != t.seq && !ended && e.Seq != 0 {
				continue
			}
			if !yield(e, nil) || e.Turn == t.seq && e.Kind == KindDone {
				return
			}
		}
	}
}

// Wait returns how the turn ended. A run that ended without saying so gives
// [ErrEnded].
func (t *Turn) Wait(ctx context.Context) (Done, error) {
	end := "without a reason"
	for e, err := range t.Events(ctx) {
		if err != nil {
			return Done{}, err
		}
		if o, ok := e.Outcome(); ok {
			end = o.String()
		}
		if e.Kind != KindDone {
			continue
		}
		var d Done
		if err := json.Unmarshal(e.Data, &d); err != nil {
			return Done{}, fmt.Errorf("turn %d of run %s: decode how it ended: %w", t.seq, t.run.id, err)
		}
		return d, nil
	}
	return Done{}, fmt.Errorf("turn %d of run %s: %w: %s", t.seq, t.run.id, ErrEnded, end)
}

// Interrupt asks the turn to end, and does nothing if it has. After grace,
// or the run's own schedule if that is zero, stronger means follow.
func (t *Turn) Interrupt(ctx context.Context, grace time.Duration) error {
	return t.run.Control(ctx, Control{Op: ControlInterrupt, Turn: t.seq, Grace: grace})
}
