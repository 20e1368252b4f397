package runsql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"

	"modernc.org/sqlite/vtab"

	"github.com/spool-run/spool"
)

// maxLookups is how many values a statement looks up in a table one by one, with
// the index of the backend, before it lists all runs.
const maxLookups = 100

// source gives the tables of one statement their rows.
type source struct {
	Options
	ctx     context.Context
	backend spool.Backend
	exact   bool // values are equal only if they are the same
	kept    int  // rows in memory
	tables  []*table

	failed error // the first error of a table
}

// fail keeps an error, of which SQLite knows only the text.
func (s *source) fail(err error) error {
	if s.failed == nil {
		s.failed = err
	}
	return err
}

// table is a virtual table. It is used by one statement, on one goroutine. The first
// scan of a table reads the runs as they are listed. A join scans its second table
// for each row of the first: from then on rows are held in memory.
type table struct {
	*Table
	*source
	planned bool   // the statement reads it
	used    uint64 // the columns that the statement reads, as bits
	lookups int    // values that the backend looked up
	scanned bool
	held    *held                               // nil until rows are held
	counts  map[spool.State]map[spool.State]int // of runs, by the state that was asked for
}

// held are the rows of a table in memory, the newest run first, with the columns that
// the statement reads.
type held struct {
	rows    []row
	columns []int                            // that rows have
	at      []int                            // where the columns are in rows
	by      map[int]map[driver.Value][]int32 // rows by the value of a column
}

// Create implements [vtab.Module].
func (t *table) Create(c vtab.Context, _ []string) (vtab.Table, error) {
	var columns []string
	for _, col := range t.Columns {
		columns = append(columns, col.Name+" "+col.Type)
	}
	return t, c.Declare("CREATE TABLE x(" + strings.Join(columns, ", ") + ")")
}

// Connect implements [vtab.Module].
func (t *table) Connect(c vtab.Context, args []string) (vtab.Table, error) { return t.Create(c, args) }

// Disconnect implements [vtab.Table].
func (t *table) Disconnect() error { return nil }

// Destroy implements [vtab.Table].
func (t *table) Destroy() error { return nil }

// Costs of the ways to read a table, relative to each other.
const (
	costOfScan   = 1e6
	costOfLookup = 1e3
	costOfRun    = 1
)

// BestIndex implements [vtab.Table]. It prefers the rows of one run, then those with
// one value in a column: IdxNum is the number of that column plus 1, or 0 for all
// rows. Runs come in the order of their start.
func (t *table) BestIndex(info *vtab.IndexInfo) error {
	t.planned = true
	t.used |= info.ColUsed
	info.EstimatedCost, info.EstimatedRows = costOfScan, costOfScan
	best := -1
	for i, c := range info.Constraints {
		if !c.Usable || c.Op != vtab.OpEQ || c.Column < 0 || c.Column >= len(t.Columns) || !t.exact || t.Columns[c.Column].Type == "real" {
			continue
		}
		if best < 0 || c.Column < info.Constraints[best].Column { // column 0 is the run
			best = i
		}
	}
	if best >= 0 {
		column := info.Constraints[best].Column
		info.Constraints[best].ArgIndex = 0
		info.IdxNum = int64(column) + 1
		t.used |= 1 << column
		info.EstimatedCost, info.EstimatedRows = costOfLookup, costOfLookup
		if column == 0 {
			info.EstimatedCost, info.EstimatedRows = costOfRun, costOfRun
		}
	}
	p := t.plan(info, best)
	if len(info.OrderBy) == 1 && t.Name == "runs" && info.OrderBy[0].Column == t.column("created") {
		info.OrderByConsumed = true
		p.oldest = !info.OrderBy[0].Desc
	}
	info.IdxStr = p.String()
	return nil
}

// Open implements [vtab.Table].
func (t *table) Open() (vtab.Cursor, error) { return &cursor{table: t, stop: func() {}}, nil }

// rowSource yields rows, as they are in the table or as they are held.
type rowSource = iter.Seq2[row, error]

// read returns the rows with the first of the values in a column, or all if column is
// negative, and possibly more: SQLite checks each. The values are those of the terms of
// the plan.
func (t *table) read(column int, p *plan, vals []driver.Value) (rows rowSource, at []int, err error) {
	var v driver.Value
	if column >= 0 {
		v = vals[0]
		switch v.(type) {
		case nil:
			return func(func(row, error) bool) {}, nil, nil // NULL equals nothing
		case string:
			if t.Columns[column].Type != "text" {
				column = -1
			}
		case int64:
			if t.Columns[column].Type != "integer" {
				column = -1
			}
		default:
			column = -1
		}
	}
	if t.held == nil {
		if rows := t.find(column, v, p, vals); rows != nil {
			return rows, nil, nil
		}
		if err := t.hold(); err != nil {
			return nil, nil, err
		}
	}
	return t.held.read(column, v, p.oldest), t.held.at, nil
}

// find has the backend find the rows. It returns nil if they are rather held.
func (t *table) find(column int, v driver.Value, p *plan, vals []driver.Value) rowSource {
	if id, ok := v.(string); ok && column == 0 {
		if t.lookups == maxLookups {
			return nil
		}
		t.lookups++
		return t.one(spool.RunID(id))
	}
	f := t.Filter
	f.Oldest = p.oldest
	helps, equal := p.narrow(&f, vals)
	if f.Check() != nil { // there is no such state
		return func(func(row, error) bool) {}
	}
	if p.count {
		if rows := t.counted(f); rows != nil {
			return rows
		}
	}
	switch {
	case equal && t.lookups < maxLookups:
		t.lookups++
	case equal, t.scanned, !helps && (column >= 0 || len(t.together()) > 1):
		return nil
	default:
		t.scanned = true
	}
	f.Brief = t.isBrief()
	return t.list(f)
}

// one yields the rows of a run.
func (t *table) one(id spool.RunID) rowSource {
	return func(yield func(row, error) bool) {
		info, err := t.backend.Stat(t.ctx, id)
		switch {
		case errors.Is(err, spool.ErrNotFound), errors.Is(err, spool.ErrInvalid):
		case err != nil:
			yield(nil, err)
		case t.selects(&info):
			t.yieldRows(&info, yield)
		}
	}
}

// list yields the rows of all runs that a filter and the options select.
func (t *table) list(f spool.Filter) rowSource {
	return func(yield func(row, error) bool) {
		for info, err := range t.infos(f) {
			if err != nil {
				yield(nil, err)
				return
			}
			if !t.yieldRows(&info, yield) {
				return
			}
		}
	}
}

// selects reports whether the tables have a run.
func (s *source) selects(info *spool.Info) bool {
	return s.Filter.Match(info) && (s.Match == nil || s.Match(info))
}

// infos yields the runs that a filter and the options select. An error is the last.
func (s *source) infos(f spool.Filter) iter.Seq2[spool.Info, error] {
	return func(yield func(spool.Info, error) bool) {
		for info, err := range s.backend.List(s.ctx, f) {
			switch {
			case err != nil && (s.ctx.Err() != nil || s.Lost(err)):
				yield(info, err)
				return
			case err != nil:
				s.Warn(err)
			case s.selects(&info) && !yield(info, nil):
				return
			}
		}
	}
}

// yieldRows yields the rows of a run.
func (t *table) yieldRows(info *spool.Info, yield func(row, error) bool) bool {
	rows, err := t.rowsOf(info)
	if err != nil {
		return yield(nil, err)
	}
	for _, r := range rows {
		if !yield(r, nil) {
			return false
		}
	}
	return true
}

// together returns the tables that one list of runs fills: this one, and if it needs
// no logs the others of the statement that need none.
func (t *table) together() []*table {
	list := []*table{t}
	for _, other := range t.tables {
		if other != t && other.planned && other.held == nil && t.isDescribed() && other.isDescribed() {
			list = append(list, other)
		}
	}
	return list
}

// isDescribed reports whether descriptions of runs have all rows of the table.
func (t *table) isDescribed() bool { return t.Name == "runs" || t.Name == "labels" }

// isBrief reports whether brief descriptions of runs have all columns that the statement
// reads.
func (t *table) isBrief() bool {
	if t.Match != nil || !t.isDescribed() {
		return false
	}
	for i, c := range t.Columns {
		if t.uses(i) && t.Name == "runs" && !slices.Contains(briefColumns, c.Name) {
			return false
		}
	}
	return true
}

// briefColumns are the columns of runs that [spool.Filter.Brief] leaves.
var briefColumns = []string{"id", "name", "engine", "subject", "state", "outcome", "created", "ended", "wall_ms"}

// hold reads the table into memory, with those that need the same list of runs.
func (t *table) hold() error {
	together := t.together()
	for _, t := range together {
		t.held = newHeld(t)
	}
	f := t.Filter
	f.Oldest = false
	f.Brief = !slices.ContainsFunc(together, func(t *table) bool { return !t.isBrief() })
	for info, err := range t.infos(f) {
		if err != nil {
			return err
		}
		for _, t := range together {
			rows, err := t.rowsOf(&info)
			if err != nil {
				return err
			}
			if t.kept += len(rows); t.kept > t.Rows {
				return &RowsError{t.Rows}
			}
			t.held.add(rows)
		}
	}
	return nil
}

// newHeld returns no rows of a table.
func newHeld(t *table) *held {
	h := &held{at: make([]int, len(t.Columns)), by: make(map[int]map[driver.Value][]int32)}
	for i := range t.Columns {
		if t.uses(i) {
			h.at[i] = len(h.columns)
			h.columns = append(h.columns, i)
		}
	}
	return h
}

// add adds the columns of rows that the statement reads.
func (h *held) add(rows []row) {
	for _, r := range rows {
		short := make(row, len(h.columns))
		for i, column := range h.columns {
			short[i] = r[column]
		}
		h.rows = append(h.rows, short)
	}
}

// read yields the rows with a value in a column, or all if column is negative.
func (h *held) read(column int, v driver.Value, oldest bool) rowSource {
	if column < 0 {
		return func(yield func(row, error) bool) {
			for i := range h.rows {
				if oldest {
					i = len(h.rows) - 1 - i
				}
				if !yield(h.rows[i], nil) {
					return
				}
			}
		}
	}
	rows := h.index(column)[v]
	return func(yield func(row, error) bool) {
		for i := range rows {
			if oldest {
				i = len(rows) - 1 - i
			}
			if !yield(h.rows[rows[i]], nil) {
				return
			}
		}
	}
}

// index returns the rows by the value of a column.
func (h *held) index(column int) map[driver.Value][]int32 {
	by := h.by[column]
	if by == nil {
		by = make(map[driver.Value][]int32)
		for i, r := range h.rows {
			v := r[h.at[column]]
			by[v] = append(by[v], int32(i))
		}
		h.by[column] = by
	}
	return by
}

// cursor is a position in a table.
type cursor struct {
	*table
	next func() (row, error, bool)
	stop func()
	row  row
	at   []int // where the columns are in row; nil if in their order
	id   int64
	end  bool
}

// Filter implements [vtab.Cursor].
func (c *cursor) Filter(num int, order string, vals []vtab.Value) error {
	c.stop()
	p := parsePlan(order)
	rows, at, err := c.read(num-1, &p, vals)
	if err != nil {
		return c.fail(err)
	}
	c.next, c.stop = iter.Pull2(rows)
	c.at, c.end = at, false
	return c.Next()
}

// Next implements [vtab.Cursor].
func (c *cursor) Next() error {
	r, err, ok := c.next()
	if err != nil {
		return c.fail(err)
	}
	c.row, c.end = r, !ok
	c.id++
	return nil
}

// Eof implements [vtab.Cursor].
func (c *cursor) Eof() bool { return c.end }

// Column implements [vtab.Cursor].
func (c *cursor) Column(i int) (vtab.Value, error) {
	if i < 0 || i >= len(c.Columns) {
		return nil, fmt.Errorf("table %s has no column %d", c.Name, i)
	}
	if c.at != nil {
		i = c.at[i]
	}
	return c.row[i], nil
}

// Rowid implements [vtab.Cursor].
func (c *cursor) Rowid() (int64, error) { return c.id, nil }

// Close implements [vtab.Cursor].
func (c *cursor) Close() error {
	c.stop()
	return nil
}
