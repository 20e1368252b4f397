package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/render"
)

// tokens is a flag for a number of tokens: 2000t, 2000 or 2kt.
type tokens int

// Set implements [pflag.Value].
func (n *tokens) Set(text string) error {
	number, factor := strings.TrimSuffix(text, "t"), 1
	if rest, ok := strings.CutSuffix(number, "k"); ok {
		number, factor = rest, 1000
	}
	v, err := strconv.ParseUint(number, 10, 24)
	if err != nil || v == 0 {
		return fmt.Errorf("%q is not a number of tokens, such as 2000t or 8kt", text)
	}
	*n = tokens(int(v) * factor)
	return nil
}

// String implements [pflag.Value].
func (n *tokens) String() string {
	if *n == 0 {
		return ""
	}
	return strconv.Itoa(int(*n)) + "t"
}

// Type implements [pflag.Value].
func (n *tokens) Type() string { return "tokens" }

// logsBudget prints an excerpt of the log of a run.
func (a *app) logsBudget(ctx context.Context, b spool.Backend, name string, o logsOptions) error {
	run, err := spool.Find(ctx, b, name)
	if err != nil {
		return err
	}
	budget := render.Budget{Tokens: int(o.budget), After: spool.Seq(o.after), To: spool.Seq(o.to), Stream: o.stream()}
	stream := ""
	if budget.Stream != "" {
		stream = " --" + string(budget.Stream)
	}
	budget.Fetch = func(from, to spool.Seq) string {
		return fmt.Sprintf("spool logs%s --after %d --to %d %s", stream, from-1, to, run.ID())
	}
	excerpt, err := budget.Read(ctx, run)
	if err != nil {
		return err
	}
	text := excerpt.Text
	if o.json {
		b, err := json.Marshal(excerpt)
		if err != nil {
			return err
		}
		text = string(b) + "\n"
	}
	if _, err := io.WriteString(a.screen(a.stdout), text); err != nil {
		return &writeError{err}
	}
	return nil
}
