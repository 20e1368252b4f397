// Package runsql answers SQL statements about runs. SQLite executes them; its tables
// are virtual, and their rows come from a backend when a statement needs them, so
// that nothing is copied into a database first. A statement can only read.
package runsql

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"modernc.org/sqlite"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/lazyregexp"
)

// Limits of SQLite, in bytes.
const (
	maxMemory = 64 << 20 // that it sorts and groups in, before it uses a temporary file
	maxValue  = 16 << 20 // of a text that a statement makes
)

// Options say which runs the tables have, and how.
type Options struct {
	Filter spool.Filter
	// Match selects from the runs that Filter selects; nil selects all.
	Match func(*spool.Info) bool
	// Now is until when live runs took; zero means the time of the call.
	Now time.Time
	// Rows is how many rows a statement may hold in memory to join them.
	Rows int
	// Warn is told of runs that cannot be read, which the tables lack.
	Warn func(error)
	// Lost reports whether an error ends a list, instead of being about one run.
	Lost func(error) bool
	// Command returns the text of a command.
	Command func(argv []string) string
	// EachEvent calls do with the events of a run up to last.
	EachEvent func(ctx context.Context, r *spool.Run, last spool.Seq, do func(*spool.Event) error) error
}

// RowsError says that a statement would hold too many rows.
type RowsError struct{ Rows int }

func (e *RowsError) Error() string {
	return fmt.Sprintf("the statement needs more than %d rows in memory", e.Rows)
}

// Query executes a statement over the runs of a backend. The result is the titles
// of its columns, once, and then its rows, whose values are nil, int64, float64,
// string or []byte and are valid until the next row.
func Query(ctx context.Context, b spool.Backend, statement string, o Options, begin func(titles []string) error, yield func(values []any) error) error {
	if err := check(statement); err != nil {
		return err
	}
	s := &source{Options: o, ctx: ctx, backend: b, exact: !collates().MatchString(statement)}
	if s.Now.IsZero() {
		s.Now = time.Now()
	}
	db := sql.OpenDB(connector{s, new(sqlite.Driver)})
	defer func() { _ = db.Close() }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	const lengthLimit = 0 // SQLITE_LIMIT_LENGTH
	if _, err := sqlite.Limit(conn, lengthLimit, maxValue); err != nil {
		return err
	}
	for titles, values := range s.rows(conn, statement, &err) {
		if titles != nil {
			err = begin(titles)
		} else {
			err = yield(values)
		}
		if err != nil {
			return err
		}
	}
	return s.explain(statement, err)
}

// collates finds collations, with which values are equal that are not the same. The
// tables are not told of them, and so do not look up values then.
var collates = lazyregexp.New(`(?i)\bcollate\b`)

// rows executes a statement and yields titles, and then rows. If it fails, err is
// why.
func (s *source) rows(db *sql.Conn, statement string, err *error) iter.Seq2[[]string, []any] {
	return func(yield func([]string, []any) bool) {
		rows, queryErr := db.QueryContext(s.ctx, statement)
		if *err = queryErr; queryErr != nil {
			return
		}
		defer func() { _ = rows.Close() }() // it read everything, or another error matters
		titles, colErr := rows.Columns()
		if *err = colErr; colErr != nil || !yield(titles, nil) {
			return
		}
		values, into := make([]any, len(titles)), make([]any, len(titles))
		for i := range values {
			into[i] = &values[i]
		}
		for rows.Next() {
			if *err = rows.Scan(into...); *err != nil || !yield(nil, values) {
				return
			}
		}
		*err = rows.Err()
	}
}

// onlyReads refuses all that a statement could do beside reading the tables.
func onlyReads(action sqlite.AuthorizerActionCode, _, function, _, _ string) sqlite.AuthorizerReturnCode {
	switch action {
	case sqlite.AuthSelect, sqlite.AuthRead, sqlite.AuthRecursive:
		return sqlite.AuthorizerOK
	case sqlite.AuthFunction:
		if function != "load_extension" {
			return sqlite.AuthorizerOK
		}
	}
	return sqlite.AuthorizerDeny
}

// Error is an error in a statement, with what to do about it.
type Error struct{ Text, Hint string }

func (e *Error) Error() string { return e.Text }

// missing finds what SQLite does not know.
var missing = lazyregexp.New(`no such (column|table|function): (\S+)`)

// resultCode finds the number at the end of a message of SQLite.
var resultCode = lazyregexp.New(` \(\d+\)$`)

// explain returns the error of a statement in words for who wrote it.
func (s *source) explain(statement string, err error) error {
	switch {
	case err == nil:
		return nil
	case s.failed != nil:
		return s.failed
	case s.ctx.Err() != nil:
		return context.Cause(s.ctx)
	}
	var sq *sqlite.Error
	if !errors.As(err, &sq) {
		return err
	}
	text := strings.TrimPrefix(resultCode().ReplaceAllString(sq.Error(), ""), "SQL logic error: ")
	if m := missing().FindStringSubmatch(text); m != nil {
		text = fmt.Sprintf("there is no %s %s", m[1], m[2])
		switch m[1] {
		case "table":
			return &Error{text, "the tables are " + tableNames()}
		case "column":
			return &Error{text, columnsIn(statement)}
		}
		return &Error{text, "the functions are those of SQLite: https://sqlite.org/lang_corefunc.html"}
	}
	if sq.Code()&0xff == notAuthorized {
		return errReadOnly
	}
	return &Error{text, ""}
}

// notAuthorized is the result code of SQLite for what onlyReads denies.
const notAuthorized = 23

var errReadOnly = errors.New("the statement is refused: the tables can only be read, with SELECT")

// tableNames lists the tables.
func tableNames() string {
	var names []string
	for _, t := range Tables {
		names = append(names, t.Name)
	}
	return strings.Join(names, ", ")
}

// columnsIn lists the columns of the tables that a statement names.
func columnsIn(statement string) string {
	words := strings.FieldsFunc(strings.ToLower(statement), func(r rune) bool { return !(r >= 'a' && r <= 'z' || r == '_') })
	var lists []string
	for _, t := range Tables {
		if !slices.Contains(words, t.Name) {
			continue
		}
		var names []string
		for _, c := range t.Columns {
			names = append(names, c.Name)
		}
		lists = append(lists, t.Name+" has "+strings.Join(names, ", "))
	}
	if len(lists) == 0 {
		return "the tables are " + tableNames()
	}
	return strings.Join(lists, "; ")
}
