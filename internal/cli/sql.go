package cli

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/runsql"
)

// The limits of a statement, unless flags say otherwise.
const (
	defaultSQLTimeout = time.Minute
	defaultSQLRows    = 1_000_000 // held in memory at once
)

// sqlOptions are the flags of spool sql.
type sqlOptions struct {
	tables, json, csv bool
	timeout           time.Duration
	rows              int
	selected          psOptions
}

func (a *app) sqlCommand() *cobra.Command {
	var o sqlOptions
	cmd := &cobra.Command{
		Use:   "sql [flags] STATEMENT",
		Short: "Ask runs, turns, asks and usage questions in SQL",
		Long: `Sql executes one SELECT over the tables runs, labels, turns, asks and usage, which
--tables describes, and prints the rows. The tables can only be read. What is not
known is NULL.

The flags of "spool ps" select the runs that the tables have. A statement that needs
only runs and labels reads descriptions; turns, asks and usage read the logs of the
selected kernels, sandboxes and agents: --since makes that quicker.

The language is that of SQLite, with its joins, window functions and functions of dates.

With --json it prints one JSON object per row and line, with --csv CSV.`,
		Example: `  spool sql "SELECT engine, count(*) FROM runs GROUP BY 1"
  spool sql --since 7d "SELECT date(created) AS day, sum(cost_usd) FROM runs GROUP BY day"
  spool sql --csv "SELECT id, name, wall_ms FROM runs ORDER BY wall_ms DESC LIMIT 10"
  spool sql --tables`,
		Args:              usageArgs(cobra.MaximumNArgs(1)),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case o.tables && len(args) > 0:
				return usageErrorf("--tables takes no statement")
			case o.tables:
				return a.printTables()
			case len(args) == 0:
				return usageErrorf(`which statement? For example: spool sql "SELECT engine, count(*) FROM runs GROUP BY 1"`)
			case o.timeout <= 0:
				return usageErrorf("--timeout must be positive")
			case o.rows <= 0:
				return usageErrorf("--max-rows must be positive")
			}
			list, err := newRunList(a, o.selected)
			if err != nil {
				return err
			}
			return with(a.open, cmd.Context(), func(b spool.Backend) error { return a.sql(cmd.Context(), b, list, &o, args[0]) })
		},
	}
	flags := cmd.Flags()
	flags.BoolVar(&o.tables, "tables", false, "print the tables and their columns")
	flags.BoolVar(&o.json, "json", false, "print one JSON object per line, one line per row")
	flags.BoolVar(&o.csv, "csv", false, "print CSV")
	flags.DurationVar(&o.timeout, "timeout", defaultSQLTimeout, "end the statement after this `time`")
	flags.IntVar(&o.rows, "max-rows", defaultSQLRows, "hold at most this `number` of rows in memory, to join tables or to print them as a table")
	a.selectFlags(cmd, &o.selected)
	cmd.MarkFlagsMutuallyExclusive("json", "csv", "tables")
	return cmd
}

// errSQLTimeout is the cause of a statement that took too long.
var errSQLTimeout = errors.New("the statement took too long")

func (a *app) sql(ctx context.Context, b spool.Backend, list *runList, o *sqlOptions, statement string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, o.timeout, errSQLTimeout)
	defer cancel()
	out := a.rowPrinter(o)
	err := runsql.Query(ctx, b, statement, runsql.Options{
		Filter: list.filter, Match: list.match, Rows: o.rows,
		Warn: func(err error) { fmt.Fprintf(a.stderr, "spool: sql: %v\n", err) },
		Lost: isLost, Command: commandText,
		EachEvent: func(ctx context.Context, r *spool.Run, last spool.Seq, do func(*spool.Event) error) error {
			return eachEvent(ctx, r, 0, last, do)
		},
	}, out.begin, out.row)
	if err == nil {
		return out.end()
	}
	const fewer = "select fewer runs with --since or --label, or "
	var many *runsql.RowsError
	var bad *runsql.Error
	switch {
	case errors.Is(err, errSQLTimeout), errors.Is(context.Cause(ctx), errSQLTimeout):
		return &hintedError{errSQLTimeout, fewer + "give it more time with --timeout"}
	case errors.As(err, &many):
		return &hintedError{err, fewer + "allow more with --max-rows"}
	case errors.As(err, &bad) && bad.Hint != "":
		return &hintedError{err, bad.Hint}
	}
	return err
}

// rowPrinter prints the rows of a statement.
type rowPrinter struct {
	begin func(titles []string) error
	row   func([]any) error
	end   func() error
}

func (a *app) rowPrinter(o *sqlOptions) rowPrinter {
	var titles []string
	switch {
	case o.json:
		var names [][]byte
		return rowPrinter{
			begin: func(t []string) error {
				for _, title := range t {
					b, err := json.Marshal(title)
					if err != nil {
						return err
					}
					names = append(names, b)
				}
				return nil
			},
			row: func(values []any) error {
				line := []byte{'{'}
				for i, v := range values {
					b, err := json.Marshal(jsonValue(v))
					if err != nil {
						return err
					}
					if i > 0 {
						line = append(line, ',')
					}
					line = append(append(append(line, names[i]...), ':'), b...)
				}
				return a.writeRow(append(line, '}', '\n'))
			},
			end: func() error { return nil },
		}
	case o.csv:
		w := csv.NewWriter(a.stdout)
		return rowPrinter{
			begin: w.Write,
			row: func(values []any) error {
				cells := make([]string, len(values))
				for i, v := range values {
					cells[i] = sqlText(v)
				}
				return w.Write(cells)
			},
			end: func() error {
				w.Flush()
				if err := w.Error(); err != nil {
					return &writeError{err}
				}
				return nil
			},
		}
	}
	t := &table{}
	return rowPrinter{
		begin: func(names []string) error {
			titles = names
			for _, name := range titles {
				t.columns = append(t.columns, column{title: plain(name), right: true, least: 10})
			}
			return nil
		},
		row: func(values []any) error {
			cells := make([]string, len(values))
			for i, v := range values {
				if _, ok := v.(string); ok {
					t.columns[i].right = false
				}
				cells[i] = plain(strings.ReplaceAll(sqlText(v), "\n", " "))
			}
			if t.rows = append(t.rows, cells); len(t.rows) > o.rows {
				return &runsql.RowsError{Rows: o.rows}
			}
			return nil
		},
		end: func() error {
			size, _ := terminalSize(a.stdout)
			_, err := a.stdout.WriteString(t.text(int(size.Cols)))
			return err
		},
	}
}

func (a *app) writeRow(line []byte) error {
	if _, err := a.stdout.Write(line); err != nil {
		return &writeError{err}
	}
	return nil
}

// printTables prints the schema.
func (a *app) printTables() error {
	t := table{columns: []column{{title: "TABLE"}, {title: "COLUMN"}, {title: "TYPE"}, {title: "CONTENTS"}}}
	for _, tab := range runsql.Tables {
		for _, c := range tab.Columns {
			t.rows = append(t.rows, []string{tab.Name, c.Name, c.Type, c.About})
		}
	}
	_, err := a.stdout.WriteString(t.text(0))
	return err
}

// sqlText returns a value as text; NULL is empty.
func sqlText(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case []byte:
		return string(v)
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64)
	}
	return fmt.Sprint(v)
}

// jsonValue returns a value as JSON has it, which knows no infinity.
func jsonValue(v any) any {
	switch v := v.(type) {
	case []byte:
		return string(v)
	case float64:
		if math.IsInf(v, 0) || math.IsNaN(v) {
			return sqlText(v)
		}
	}
	return v
}
