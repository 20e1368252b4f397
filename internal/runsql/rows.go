package runsql

import (
	"context"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/ledger"
)

// row is one row of a table, with a value for each column.
type row []driver.Value

// rowsOf returns the rows that a run has in the table, with the columns that the statement
// reads.
func (t *table) rowsOf(info *spool.Info) ([]row, error) {
	switch t.Name {
	case "runs":
		return []row{t.runRow(info)}, nil
	case "labels":
		var rows []row
		for _, k := range slices.Sorted(maps.Keys(info.Labels)) {
			rows = append(rows, row{string(info.ID), k, info.Labels[k]})
		}
		return rows, nil
	}
	return t.logRows(t.ctx, t.Name, info)
}

// uses reports whether the statement reads a column.
func (t *table) uses(column int) bool { return t.used&(1<<column) != 0 }

// runRow returns the row of a run, in the order of the columns.
func (t *table) runRow(info *spool.Info) row {
	e := ledger.Of(info, t.Now)
	o := info.Outcome
	r := append(make(row, 0, len(t.Columns)), string(info.ID), textOrNull(info.Name), info.Engine, textOrNull(e.Subject), string(info.State))
	switch {
	case o == nil:
		r = append(r, nil, nil, nil, nil, nil)
	case o.Kind == spool.Exited:
		r = append(r, string(o.Kind), int64(o.Code), textOrNull(o.Signal), textOrNull(o.Reason), oneOrZero(ledger.Failed(info)))
	default:
		r = append(r, string(o.Kind), nil, nil, textOrNull(o.Reason), oneOrZero(ledger.Failed(info)))
	}
	for _, at := range []time.Time{info.Created, info.Ended} {
		if !t.uses(len(r)) { // a text of a time takes longer than all the rest
			at = time.Time{}
		}
		r = append(r, timeOrNull(at))
	}
	if e.WallMs != nil {
		r = append(r, *e.WallMs)
	} else {
		r = append(r, nil)
	}
	l := e.Ledger
	if l != nil && l.Processes != nil {
		p := l.Processes
		r = append(r, p.UserUs, p.SystemUs, numberOrNull(p.PeakMemory))
	} else {
		r = append(r, nil, nil, nil)
	}
	if l != nil {
		r = append(r, l.InputBytes, info.Bytes, int64(l.Turns), textOrNull(strings.Join(l.Limits, ",")))
	} else {
		r = append(r, nil, info.Bytes, nil, nil)
	}
	r = append(r, textOrNull(info.Title), textOrNull(string(info.TurnOutcome)), textOrNull(info.Cwd), nil)
	if command := len(r) - 1; t.uses(command) {
		r[command] = textOrNull(t.Command(info.Argv))
	}
	if l == nil {
		return append(r, tokenCells(nil)...)
	}
	return append(r, tokenCells(l.Tokens)...)
}

// tokenCells are the values of tokenColumns.
func tokenCells(t *spool.TokenUse) []driver.Value {
	if t == nil {
		return make([]driver.Value, len(tokenColumns))
	}
	cells := []driver.Value{t.Input, t.CacheRead, t.CacheWrite, t.Output, t.Reasoning, nil, int64(t.Steps)}
	if t.CostUSD != 0 {
		cells[5] = t.CostUSD
	}
	return cells
}

func textOrNull(s string) driver.Value {
	if s == "" {
		return nil
	}
	return s
}

func numberOrNull(n int64) driver.Value {
	if n == 0 {
		return nil
	}
	return n
}

func oneOrZero(b bool) driver.Value {
	if b {
		return int64(1)
	}
	return int64(0)
}

// timeOrNull returns a time in a form that sorts, and that SQLite reads.
func timeOrNull(t time.Time) driver.Value {
	if t.IsZero() {
		return nil
	}
	return t.UTC().Format("2006-01-02T15:04:05.000000Z")
}

// mayHaveRows reports whether the log of a run may have rows of a table.
func mayHaveRows(info *spool.Info, table string) bool {
	switch {
	case info.Engine == spool.EngineProcess:
		return table == "asks" && info.Isolation != nil && info.Isolation.AskHosts
	case table == "usage" && info.Engine != agent.Engine:
		return false
	}
	return info.Ledger == nil || info.Ledger.Turns > 0
}

// logRows returns the rows of a table that are in the log of a run, as far as it is
// written.
func (s *source) logRows(ctx context.Context, table string, info *spool.Info) ([]row, error) {
	if !mayHaveRows(info, table) {
		return nil, nil
	}
	l := logReader{id: string(info.ID), open: make(map[spool.Seq]row), turnOf: make(map[spool.Seq]spool.Seq)}
	note := map[string]func(*spool.Event){"turns": l.turn, "asks": l.ask, "usage": l.usage}[table]
	err := s.EachEvent(ctx, spool.Attach(s.backend, info.ID), info.Last, func(e *spool.Event) error {
		note(e)
		return nil
	})
	switch {
	case err == nil, errors.Is(err, spool.ErrNotFound): // removed meanwhile
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	default:
		s.Warn(fmt.Errorf("run %s: %w", info.ID, err))
	}
	return l.rows, nil
}

// logReader makes rows of the events of a run.
type logReader struct {
	id     string
	rows   []row
	open   map[spool.Seq]row       // turns that are not done, or asks that wait
	turnOf map[spool.Seq]spool.Seq // of asks
}

func (l *logReader) turn(e *spool.Event) {
	switch e.Kind {
	case spool.KindInput:
		var said spool.Said
		if json.Unmarshal(e.Data, &said) != nil || said.Kind == spool.InputAnswer {
			return
		}
		r := row{l.id, int64(e.Seq), string(said.Kind), timeOrNull(e.Time), nil, nil, nil, nil, nil}
		l.open[e.Seq] = r
		l.rows = append(l.rows, r)
	case spool.KindDone:
		var done spool.Done
		if r := l.open[e.Turn]; r != nil && json.Unmarshal(e.Data, &done) == nil {
			r[4], r[5], r[6], r[7] = timeOrNull(e.Time), string(done.Outcome), textOrNull(done.Error), textOrNull(done.ErrorClass)
			r[8] = done.DurationMs
			delete(l.open, e.Turn)
		}
	}
}

func (l *logReader) ask(e *spool.Event) {
	for seq, r := range l.open {
		if e.ClosesAsk(seq, l.turnOf[seq]) {
			r[7] = timeOrNull(e.Time)
			delete(l.open, seq)
		}
	}
	var ask spool.Ask
	if e.Kind != spool.KindAsk || json.Unmarshal(e.Data, &ask) != nil {
		return
	}
	asked := timeOrNull(e.Time)
	r := row{l.id, int64(e.Seq), numberOrNull(int64(e.Turn)), ask.Kind, textOrNull(ask.Name), textOrNull(ask.Prompt), asked, asked}
	if e.OpensAsk() {
		r[7] = nil
		l.open[e.Seq], l.turnOf[e.Seq] = r, e.Turn
	}
	l.rows = append(l.rows, r)
}

func (l *logReader) usage(e *spool.Event) {
	var done struct {
		Usage struct {
			Turn *spool.TokenUse `json:"turn"`
		} `json:"usage"`
	}
	if e.Kind == spool.KindDone && json.Unmarshal(e.Data, &done) == nil && done.Usage.Turn != nil {
		l.rows = append(l.rows, append(row{l.id, int64(e.Turn), timeOrNull(e.Time)}, tokenCells(done.Usage.Turn)...))
	}
}
