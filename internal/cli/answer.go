package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/visible"
)

// question is an ask of a run that waits for an answer.
type question struct {
	seq, turn spool.Seq
	ask       spool.Ask
}

func (a *app) answerCommand() *cobra.Command {
	var seq uint64
	var retype string
	cmd := &cobra.Command{
		Use:   "answer [flags] RUN [ANSWER]",
		Short: "Answer what a run asks",
		Long: `Answer answers an ask of a live run: about a host, with --ask-net, or
about what an agent or a cell wants to know. Without an answer it lists the open
asks, each with its number and the answers to choose from. An answer is for the
first of them, or for the one of --ask. To allow what the policy of an agent
calls dangerous, give the command again with --retype.`,
		Example: `  spool answer build
  spool answer build allow
  spool answer --ask 17 build deny
  spool answer --retype 'rm -r build' fixer allow`,
		Args:              usageArgs(cobra.RangeArgs(1, 2)),
		ValidArgsFunction: a.completeLiveRun,
		RunE: func(cmd *cobra.Command, args []string) error {
			return with(a.open, cmd.Context(), func(b spool.Backend) error {
				return a.answer(cmd.Context(), b, spool.Answer{Ask: spool.Seq(seq), By: "spool answer", Retype: retype}, args)
			})
		},
	}
	cmd.Flags().Uint64Var(&seq, "ask", 0, "`number` of the ask to answer, instead of the first")
	cmd.Flags().StringVar(&retype, "retype", "", "the dangerous `command` that is allowed, typed again")
	return cmd
}

// answer sends an answer to the ask that it names, or to the first one, with the data in
// the arguments.
func (a *app) answer(ctx context.Context, b spool.Backend, say spool.Answer, args []string) error {
	run, err := spool.Find(ctx, b, args[0])
	if err != nil {
		return err
	}
	open, err := openQuestions(ctx, run)
	if err != nil {
		return err
	}
	if len(args) == 1 {
		if len(open) == 0 {
			fmt.Fprintf(a.stderr, "spool: answer: %s asks nothing\n", args[0])
		}
		for _, q := range open {
			if _, err := fmt.Fprintf(a.stdout, "%d  %s\n", q.seq, q.text()); err != nil {
				return err
			}
		}
		return nil
	}
	for _, q := range open {
		if say.Ask != 0 && q.seq != say.Ask {
			continue
		}
		if say.Data, err = q.data(args[1]); err != nil {
			return err
		}
		say.Ask = q.seq
		if err = run.Answer(ctx, say, q.ask.Secret); errors.Is(err, spool.ErrNotRetyped) {
			return &hintedError{err, "give the command again with --retype; \"spool answer " + args[0] + "\" shows it"}
		}
		return err
	}
	if say.Ask != 0 {
		return fmt.Errorf("answer to %d: %w", say.Ask, spool.ErrNotAsked)
	}
	return &hintedError{spool.ErrNotAsked, fmt.Sprintf("\"spool logs %s\" shows what the run did", args[0])}
}

// openQuestions returns the asks of a run that wait for an answer, in order.
func openQuestions(ctx context.Context, run *spool.Run) ([]question, error) {
	var open []question
	for after := spool.Seq(0); ; {
		page, err := run.Read(ctx, spool.Query{After: after})
		if err != nil {
			return nil, err
		}
		for _, e := range page.Events {
			var ask spool.Ask
			if e.OpensAsk() && json.Unmarshal(e.Data, &ask) == nil {
				open = append(open, question{e.Seq, e.Turn, ask})
				continue
			}
			for i := 0; i < len(open); i++ {
				if e.ClosesAsk(open[i].seq, open[i].turn) {
					open = append(open[:i], open[i+1:]...)
					i--
				}
			}
		}
		if len(page.Events) == 0 || page.End() {
			return open, nil
		}
		after = page.Next
	}
}

// text is what a person reads of an ask.
func (q *question) text() string {
	text := q.ask.Prompt
	if text == "" {
		text = q.ask.Kind + " " + q.ask.Name
	}
	var ids []string
	for _, o := range q.ask.Options {
		ids = append(ids, o.ID)
	}
	if len(ids) > 0 {
		text += " (" + strings.Join(ids, ", ") + ")"
	}
	if again := q.ask.RetypeText(); again != "" {
		text += "; dangerous, to be allowed with --retype: " + visible.Line(again)
	}
	return text
}

// data checks an answer and encodes it.
func (q *question) data(text string) (json.RawMessage, error) {
	if q.ask.Kind == spool.AskTool { // its answer is a value
		if !json.Valid([]byte(text)) {
			return nil, usageErrorf("the answer to a call of a tool is JSON")
		}
		return json.RawMessage(text), nil
	}
	var ids []string
	for _, o := range q.ask.Options {
		if ids = append(ids, o.ID); o.ID == text {
			ids = nil
			break
		}
	}
	if len(ids) > 0 {
		return nil, usageErrorf("the answer %q is not among %s", text, strings.Join(ids, ", "))
	}
	return json.Marshal(text)
}

// askNetwork is the kind of an ask about a host.
const askNetwork = "network"

// asksAboutHost reports whether an event is an ask about a host, which "spool answer"
// answers.
func asksAboutHost(e *spool.Event) bool {
	var ask spool.Ask
	return e.Kind == spool.KindAsk && json.Unmarshal(e.Data, &ask) == nil && ask.Kind == askNetwork
}
