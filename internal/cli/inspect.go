package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/lazyregexp"
	"github.com/spool-run/spool/internal/limits"
)

func (a *app) inspectCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "inspect [flags] RUN…",
		Short: "Print all that is known of runs, as JSON",
		Long: `Inspect prints the description of runs as JSON, with the same fields as "spool ps
--json", and the limits that they met. For kernels, sandboxes and agents it adds the
turns with their outcomes, the questions that wait for an answer, and the blobs:
images and other large values that "spool blob" prints.`,
		Example: `  spool inspect build
  spool inspect --json build test
  spool inspect plots | jq '.blobs[].blob'`,
		Args:              usageArgs(cobra.MinimumNArgs(1)),
		ValidArgsFunction: a.completeRuns,
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(a.open, cmd.Context(), func(b spool.Backend) error {
				var errs []error
				for _, name := range args {
					errs = append(errs, a.inspect(cmd.Context(), b, name, asJSON))
				}
				return errors.Join(errs...)
			})
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print each object on one line")
	return cmd
}

// inspectedTurn is a turn in the output of spool inspect.
type inspectedTurn struct {
	Turn       spool.Seq         `json:"turn"`
	Began      time.Time         `json:"began,omitzero"`
	Ended      time.Time         `json:"ended,omitzero"`
	Kind       spool.InputKind   `json:"kind,omitempty"`
	Outcome    spool.TurnOutcome `json:"outcome,omitempty"`
	Error      string            `json:"error,omitempty"`
	DurationMs int64             `json:"duration_ms,omitempty"`
}

// inspectedAsk is an open ask in the output of spool inspect.
type inspectedAsk struct {
	Ask    spool.Seq `json:"ask"`
	Turn   spool.Seq `json:"turn,omitempty"`
	Kind   string    `json:"kind"`
	Name   string    `json:"name,omitempty"`
	Prompt string    `json:"prompt,omitempty"`
}

// inspectedLimit is a limit that a run met, in the output of spool inspect.
type inspectedLimit struct {
	Code string `json:"code"`
	Text string `json:"text"`
}

// inspection is what the log of a run adds to its description.
type inspection struct {
	Turns []*inspectedTurn `json:"turns,omitempty"`
	Asks  []inspectedAsk   `json:"asks,omitempty"`
	Blobs []spool.Blob     `json:"blobs,omitempty"`
	// Limits are those that the run met, as the notices in its log say.
	Limits []inspectedLimit `json:"limits_met,omitempty"`
}

// inspectedTail is how many events at the end of the log of a process are searched for
// notices.
const inspectedTail = 64

func (a *app) inspect(ctx context.Context, b spool.Backend, name string, asJSON bool) error {
	run, info, err := findInfo(ctx, b, name)
	if err != nil {
		return err
	}
	all := info.AppendJSON(nil)
	var after spool.Seq
	if info.Engine == spool.EngineProcess { // a process has no turns, and its notices at its end
		after = info.Last - min(info.Last, inspectedTail)
	}
	found, err := inspectLog(ctx, run, after, info.Last)
	if err != nil && info.Engine != spool.EngineProcess { // what is known of a process is in its description
		return err
	}
	more, err := json.Marshal(found)
	if err != nil {
		return err
	}
	if len(more) > len("{}") {
		all = append(append(all[:len(all)-1], ','), more[1:]...)
	}
	var out bytes.Buffer
	if asJSON {
		out.Write(all)
	} else if err := json.Indent(&out, all, "", "  "); err != nil {
		return err
	}
	out.WriteByte('\n')
	_, err = a.stdout.Write(out.Bytes())
	return err
}

// inspectLog reads the turns, open asks, blobs and limits of a run.
func inspectLog(ctx context.Context, run *spool.Run, after, last spool.Seq) (inspection, error) {
	var found inspection
	turns := make(map[spool.Seq]*inspectedTurn)
	asks := make(map[spool.Seq]inspectedAsk)
	blobs := make(map[spool.Digest]bool)
	err := eachEvent(ctx, run, after, last, func(e *spool.Event) error {
		switch e.Kind {
		case spool.KindInput:
			var said spool.Said
			if json.Unmarshal(e.Data, &said) == nil && said.Kind != spool.InputAnswer {
				t := &inspectedTurn{Turn: e.Seq, Began: e.Time, Kind: said.Kind}
				turns[e.Seq] = t
				found.Turns = append(found.Turns, t)
			}
		case spool.KindNotice:
			var n spool.Notice
			if json.Unmarshal(e.Data, &n) == nil && slices.Contains(limits.Codes, n.Code) {
				found.Limits = append(found.Limits, inspectedLimit{n.Code, plain(n.Text)})
			}
		case spool.KindDone:
			var done spool.Done
			if t := turns[e.Turn]; t != nil && json.Unmarshal(e.Data, &done) == nil {
				t.Ended, t.Outcome, t.Error, t.DurationMs = e.Time, done.Outcome, done.Error, done.DurationMs
			}
		}
		maps.DeleteFunc(asks, func(seq spool.Seq, ask inspectedAsk) bool { return e.ClosesAsk(seq, ask.Turn) })
		var ask spool.Ask
		if e.OpensAsk() && json.Unmarshal(e.Data, &ask) == nil {
			asks[e.Seq] = inspectedAsk{e.Seq, e.Turn, ask.Kind, plain(ask.Name), plain(ask.Prompt)}
		}
		for _, blob := range blobsIn(e.Data) {
			if !blobs[blob.Digest] {
				blobs[blob.Digest] = true
				found.Blobs = append(found.Blobs, blob)
			}
		}
		return nil
	})
	for _, seq := range slices.Sorted(maps.Keys(asks)) {
		found.Asks = append(found.Asks, asks[seq])
	}
	return found, err
}

var blobObject = lazyregexp.New(`\{"blob":"sha256:[0-9a-f]{64}"[^{}]*\}`)

// blobsIn returns the references to blobs in the data of an event.
func blobsIn(data []byte) []spool.Blob {
	if !strings.Contains(string(data), `"blob":"sha256:`) {
		return nil
	}
	var found []spool.Blob
	for _, text := range blobObject().FindAll(data, -1) {
		var blob spool.Blob
		if json.Unmarshal(text, &blob) == nil {
			found = append(found, blob)
		}
	}
	return found
}

// eachEvent calls do for the events of a log after a cursor, up to last. An event is
// only lent.
func eachEvent(ctx context.Context, run *spool.Run, after, last spool.Seq, do func(*spool.Event) error) error {
	if after >= last {
		return nil
	}
	for e, err := range run.Stream(ctx, after) {
		if err != nil {
			return err
		}
		if o, ok := e.Outcome(); ok && e.Seq == 0 { // not in the log: the connection is lost
			return errors.New(o.Reason)
		}
		if e.Seq > last {
			return nil
		}
		if err := do(&e); err != nil || e.Seq == last {
			return err
		}
	}
	return nil
}
