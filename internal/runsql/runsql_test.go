package runsql

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
)

// finishedRuns is a backend with finished runs.
type finishedRuns struct {
	spool.Backend
	infos  []spool.Info
	events map[spool.RunID][]spool.Event
	read   []spool.RunID // whose logs were read
	lists  []spool.Filter
	stats  int
}

func (b *finishedRuns) Stat(_ context.Context, id spool.RunID) (spool.Info, error) {
	b.stats++
	for _, info := range b.infos {
		if info.ID == id {
			return info, nil
		}
	}
	return spool.Info{}, spool.ErrNotFound
}

func (b *finishedRuns) List(ctx context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	b.lists = append(b.lists, f)
	return func(yield func(spool.Info, error) bool) {
		for i := range b.infos {
			if f.Oldest {
				i = len(b.infos) - 1 - i
			}
			if f.Match(&b.infos[i]) && !yield(b.infos[i], ctx.Err()) {
				return
			}
		}
	}
}

func (b *finishedRuns) Follow(_ context.Context, id spool.RunID, after spool.Seq) iter.Seq2[spool.Event, error] {
	b.read = append(b.read, id)
	return func(yield func(spool.Event, error) bool) {
		for _, e := range b.events[id][after:] {
			if !yield(e, nil) {
				return
			}
		}
	}
}

func newFinishedRuns() *finishedRuns {
	day := time.Date(2026, 11, 15, 1, 2, 3, 0, time.UTC)
	event := func(seq spool.Seq, kind spool.Kind, turn spool.Seq, data string) spool.Event {
		return spool.Event{Seq: seq, Time: day.Add(time.Duration(seq) * time.Second), Kind: kind, Turn: turn, Data: json.RawMessage(data)}
	}
	talk := []spool.Event{
		event(1, spool.KindInput, 0, `{"kind":"prompt","data":{"text":"fix it"}}`),
		event(2, spool.KindAsk, 1, `{"kind":"approve","name":"shell","prompt":"rm x?"}`),
		event(3, spool.KindInput, 0, `{"kind":"answer","data":{"ask":2}}`),
		event(4, spool.KindDone, 1, `{"outcome":"ok","duration_ms":5,"usage":{"turn":{"input":70,"output":30,"cost_usd":0.25}}}`),
		event(5, spool.KindInput, 0, `{"kind":"prompt","data":{"text":"more"}}`),
		event(6, spool.KindAsk, 5, `{"kind":"approve","name":"shell","prompt":"rm y?"}`),
	}
	cells := []spool.Event{
		event(1, spool.KindInput, 0, `{"kind":"cell","data":{"code":"1/0"}}`),
		event(2, spool.KindDone, 1, `{"outcome":"error","error":"division by zero","error_class":"ZeroDivisionError","duration_ms":7}`),
	}
	exited := &spool.Outcome{Kind: spool.Exited}
	return &finishedRuns{
		infos: []spool.Info{
			{ID: "build1", Name: "build", Engine: "process", State: spool.StateClosed, Outcome: exited, Created: day, Ended: day.Add(time.Second), Bytes: 9, Last: 3,
				Argv: []string{"make", "all"}, Labels: map[string]string{"team": "core"},
				Ledger: &spool.Ledger{Processes: &spool.ProcessUse{UserUs: 1500, SystemUs: 500}, InputBytes: 4, Limits: []string{"timeout"}}},
			{ID: "lost1", Engine: "process", State: spool.StateClosed, Outcome: &spool.Outcome{Kind: spool.Unknown, Reason: "its keeper was lost"}, Created: day, Ended: day.Add(time.Hour)},
			{ID: "py1", Engine: "kernel", State: spool.StateClosed, Outcome: exited, TurnOutcome: spool.TurnError, Created: day, Ended: day, Last: 2, Ledger: &spool.Ledger{Turns: 1}},
			{ID: "py2", Engine: "kernel", State: spool.StateClosed, Outcome: exited, Created: day, Ended: day, Last: 1, Ledger: &spool.Ledger{}},
			{ID: "talk1", Engine: "agent", State: spool.StateRunning, Created: day, Last: 6},
		},
		events: map[spool.RunID][]spool.Event{"talk1": talk, "py1": cells},
	}
}

// queryRows executes a statement and returns its rows as text.
func queryRows(t *testing.T, b spool.Backend, statement string) ([]string, error) {
	t.Helper()
	var rows []string
	err := Query(t.Context(), b, statement, options(t), func([]string) error { return nil }, func(values []any) error {
		rows = append(rows, strings.Trim(fmt.Sprint(values), "[]"))
		return nil
	})
	return rows, err
}

func options(t *testing.T) Options {
	return Options{
		Match: func(*spool.Info) bool { return true }, Rows: 1000, Now: time.Date(2026, 11, 15, 1, 2, 13, 0, time.UTC),
		Warn: func(err error) { t.Error(err) }, Lost: func(error) bool { return true },
		Command: func(argv []string) string { return strings.Join(argv, " ") },
		EachEvent: func(ctx context.Context, r *spool.Run, last spool.Seq, do func(*spool.Event) error) error {
			for e, err := range r.Stream(ctx, 0) {
				if err != nil {
					return err
				}
				if err := do(&e); err != nil || e.Seq == last {
					return err
				}
			}
			return nil
		},
	}
}

// Every example of the page works and finds something, and its tables are those of
// the program.
func TestSQLPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/sql.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := regexp.MustCompile("(?s)```sql\n(.*?)```").FindAllStringSubmatch(string(page), -1)
	if len(examples) < 10 {
		t.Fatalf("%d examples", len(examples))
	}
	for _, m := range examples {
		if rows, err := queryRows(t, newFinishedRuns(), m[1]); err != nil || len(rows) == 0 {
			t.Errorf("%s: %q, %v", m[1], rows, err)
		}
	}
	for _, tab := range Tables {
		for _, c := range tab.Columns {
			if row := fmt.Sprintf("| `%s` | `%s` | %s | %s |\n", tab.Name, c.Name, c.Type, c.About); !strings.Contains(string(page), row) {
				t.Errorf("docs/sql.md lacks %s", row)
			}
		}
	}
}

func TestSQLTables(t *testing.T) {
	for _, tt := range []struct{ statement, want, read string }{
		{"SELECT id, wall_ms, user_us, peak_memory_bytes, input_bytes, output_bytes, turns, limits, command, failed FROM runs WHERE name = 'build'",
			"build1 1000 1500 <nil> 4 9 0 timeout make all 0", ""},
		{"SELECT wall_ms, user_us, input_bytes, turns, outcome, code, failed FROM runs WHERE id = 'lost1'", "<nil> <nil> <nil> <nil> unknown <nil> 0", ""},
		{"SELECT wall_ms, outcome, failed FROM runs WHERE id = 'talk1'", "10000 <nil> <nil>", ""},
		{"SELECT failed FROM runs WHERE id = 'py1'", "1", ""},
		{"SELECT * FROM labels", "build1 team core", ""},
		{"SELECT run, turn, kind, outcome, error_class, duration_ms FROM turns ORDER BY run, turn",
			"py1 1 cell error ZeroDivisionError 7,talk1 1 prompt ok <nil> 5,talk1 5 prompt <nil> <nil> <nil>", "[py1 talk1]"},
		{"SELECT ask, turn, kind, name, prompt, closed IS NULL FROM asks", "2 1 approve shell rm x? 0,6 5 approve shell rm y? 1", "[py1 talk1]"},
		{"SELECT run, turn, input_tokens, output_tokens, cost_usd FROM usage", "talk1 1 70 30 0.25", "[talk1]"},
	} {
		b := newFinishedRuns()
		rows, err := queryRows(t, b, tt.statement)
		if got := strings.Join(rows, ","); err != nil || got != tt.want {
			t.Errorf("%s:\n got %s, %v\nwant %s", tt.statement, got, err, tt.want)
		}
		read := ""
		if b.read != nil {
			read = fmt.Sprint(b.read)
		}
		if read != tt.read {
			t.Errorf("%s reads the logs of %s, want %s", tt.statement, read, tt.read)
		}
	}
	for _, tab := range Tables { // each row has a value for each column
		if _, err := queryRows(t, newFinishedRuns(), "SELECT * FROM "+tab.Name+" ORDER BY "+fmt.Sprint(len(tab.Columns))); err != nil {
			t.Error(err)
		}
	}
}

// A statement asks the backend for what it needs: one run, those that its index
// finds, or all once; a join holds its second table in memory.
func TestReads(t *testing.T) {
	at := func(text string) time.Time {
		at, err := time.Parse(time.RFC3339, text)
		if err != nil {
			t.Fatal(err)
		}
		return at
	}
	for _, tt := range []struct {
		statement, want string
		stats           int
		lists           []spool.Filter
	}{
		{"SELECT name FROM runs WHERE id = 'build1'", "build", 1, nil},
		{"SELECT count(*) FROM runs WHERE id IN ('build1', 'py1', 'nothing')", "2", 3, nil},
		{"SELECT outcome FROM turns WHERE run = 'py1'", "error", 1, nil},
		{"SELECT id FROM runs WHERE name = 'build'", "build1", 0, []spool.Filter{{Name: "build"}}},
		{"SELECT id FROM runs WHERE engine = 'agent' AND turns IS NULL", "talk1", 0, []spool.Filter{{Engine: "agent"}}},
		{"SELECT count(*) FROM runs WHERE state = 'dead'", "0", 0, nil},
		{"SELECT id FROM runs ORDER BY created DESC LIMIT 1", "build1", 0, []spool.Filter{{}}},
		{"SELECT id FROM runs ORDER BY created LIMIT 1", "talk1", 0, []spool.Filter{{Oldest: true}}},
		{"SELECT id FROM runs WHERE name = 'BUILD' COLLATE NOCASE", "build1", 0, []spool.Filter{{}}},
		{"SELECT id FROM runs WHERE code = '0' AND name = 'build'", "build1", 0, []spool.Filter{{Name: "build"}}},
		{"SELECT count(*) FROM runs WHERE code = '0'", "3", 0, []spool.Filter{{}}},
		{"SELECT count(*) FROM runs WHERE name = NULL", "0", 0, nil},
		{"SELECT count(*) FROM runs a, runs b WHERE a.wall_ms <= b.wall_ms", "11", 0, []spool.Filter{{}, {}}},
		{"SELECT count(*) FROM runs a JOIN runs b ON a.code = b.code", "9", 0, []spool.Filter{{}, {}}},
		{"SELECT r.name, l.value FROM labels l JOIN runs r ON r.id = l.run", "build core", 0, []spool.Filter{{}}},
		{"SELECT count(*) FROM turns t JOIN runs r ON r.id = t.run", "3", 3, []spool.Filter{{}}},
		{"SELECT id FROM runs WHERE ended > '2026-11-15T02:00:00Z'", "lost1", 0, []spool.Filter{{Since: at("2026-11-15T02:00:00Z")}}},
		{"SELECT id FROM runs WHERE created >= '2026-11-15 09:00:00' AND engine = 'agent'", "talk1", 0,
			[]spool.Filter{{Engine: "agent", Since: at("2026-11-15T00:00:00Z")}}},
		{"SELECT count(*) FROM runs WHERE created BETWEEN '2026-11-14' AND '2026-11-15T01:02:03Z'", "5", 0,
			[]spool.Filter{{Since: at("2026-11-14T00:00:00Z"), Before: at("2026-11-15T01:02:04Z")}}},
		{"SELECT count(*) FROM runs WHERE created < date('2026-11-15')", "0", 0, []spool.Filter{{Before: at("2026-11-15T00:00:01Z")}}},
		{"SELECT count(*) FROM runs WHERE created > 'a week ago'", "0", 0, []spool.Filter{{}}},
		{"SELECT count(*) FROM turns WHERE began > '2026-11-15T01:02:03Z'", "3", 0, []spool.Filter{{Since: at("2026-11-15T01:02:03Z")}}},
		{"SELECT run FROM labels WHERE key = 'team'", "build1", 0, []spool.Filter{{HasLabels: []string{"team"}}}},
		{"SELECT name FROM labels JOIN runs ON id = run WHERE key = 'team' AND value = 'core'", "build", 1,
			[]spool.Filter{{Labels: map[string]string{"team": "core"}}}},
		{"SELECT run FROM labels WHERE value = 'core'", "build1", 0, []spool.Filter{{}}},
	} {
		b := newFinishedRuns()
		rows, err := queryRows(t, b, tt.statement)
		if got := strings.Join(rows, ","); err != nil || got != tt.want {
			t.Errorf("%s:\n got %s, %v\nwant %s", tt.statement, got, err, tt.want)
		}
		if diff := cmp.Diff(tt.lists, b.lists); diff != "" || b.stats != tt.stats {
			t.Errorf("%s asks for %d runs, want %d, and lists %s", tt.statement, b.stats, tt.stats, diff)
		}
	}
}

// briefRuns is a backend that leaves out of descriptions what a list does not ask for.
type briefRuns struct {
	*finishedRuns
	brief bool // the last list was
}

func (b *briefRuns) List(ctx context.Context, f spool.Filter) iter.Seq2[spool.Info, error] {
	b.brief = f.Brief
	return func(yield func(spool.Info, error) bool) {
		for info, err := range b.finishedRuns.List(ctx, f) {
			if f.Brief {
				info = spool.Info{ID: info.ID, Name: info.Name, Engine: info.Engine, Labels: info.Labels, Created: info.Created, Ended: info.Ended, State: info.State, Outcome: info.Outcome}
				if info.Outcome != nil {
					info.Outcome = &spool.Outcome{Kind: info.Outcome.Kind}
				}
			}
			if !yield(info, err) {
				return
			}
		}
	}
}

// A statement that reads only what an index has lists no whole descriptions.
func TestBriefLists(t *testing.T) {
	for _, tt := range []struct {
		statement string
		brief     bool
	}{
		{"SELECT engine, count(*) FROM runs GROUP BY engine ORDER BY 1", true},
		{"SELECT subject, outcome, count(*) FROM runs GROUP BY 1, 2 ORDER BY 1, 2", true},
		{"SELECT date(created), max(ended), sum(wall_ms) FROM runs GROUP BY 1", true},
		{"SELECT key, value, count(*) FROM labels GROUP BY 1, 2", true},
		{"SELECT id, name FROM runs WHERE state = 'closed' ORDER BY created", true},
		{"SELECT r.name, l.value FROM labels l JOIN runs r ON r.id = l.run", true},
		{"SELECT r.command, l.value FROM labels l JOIN runs r ON r.id = l.run", false},
		{"SELECT engine, sum(output_bytes) FROM runs GROUP BY engine ORDER BY 1", false},
		{"SELECT id FROM runs WHERE code = 0 ORDER BY 1", false},
		{"SELECT * FROM runs ORDER BY id", false},
		{"SELECT count(*) FROM turns", false},
	} {
		results := make([][]string, 2)
		for i, b := range []spool.Backend{newFinishedRuns(), &briefRuns{finishedRuns: newFinishedRuns()}} {
			o := options(t)
			o.Match = nil
			err := Query(t.Context(), b, tt.statement, o, func([]string) error { return nil }, func(values []any) error {
				results[i] = append(results[i], fmt.Sprint(values))
				return nil
			})
			if err != nil {
				t.Errorf("%s: %v", tt.statement, err)
			}
			if b, ok := b.(*briefRuns); ok && b.brief != tt.brief {
				t.Errorf("%s: brief %v, want %v", tt.statement, b.brief, tt.brief)
			}
		}
		if diff := cmp.Diff(results[0], results[1]); diff != "" {
			t.Errorf("%s: %s", tt.statement, diff)
		}
	}
}

// countedRuns is a backend that counts.
type countedRuns struct {
	*finishedRuns
	counts int
}

func (b *countedRuns) Count(ctx context.Context, f spool.Filter) (map[spool.State]int, error) {
	b.counts++
	counts := make(map[spool.State]int)
	for _, info := range b.infos {
		if f.Match(&info) {
			counts[info.State]++
		}
	}
	return counts, ctx.Err()
}

// A statement that needs the number of runs, or their states, lists none.
func TestCounts(t *testing.T) {
	for _, tt := range []struct{ statement, want string }{
		{"SELECT count(*) FROM runs", "5"},
		{"SELECT state, count(*) FROM runs GROUP BY state", "closed 4,running 1"},
		{"SELECT count(*) FROM runs WHERE state = 'running'", "1"},
		{"SELECT count(*) FROM runs WHERE state <> 'closed'", "1"},
		{"SELECT (SELECT count(*) FROM runs), count(*) FROM runs", "5 5"},
		{"SELECT count(*) FROM runs a, runs b", "25"},
	} {
		b := &countedRuns{finishedRuns: newFinishedRuns()}
		o := options(t)
		o.Match = nil
		var rows []string
		err := Query(t.Context(), b, tt.statement, o, func([]string) error { return nil }, func(values []any) error {
			rows = append(rows, strings.Trim(fmt.Sprint(values), "[]"))
			return nil
		})
		if got := strings.Join(rows, ","); err != nil || got != tt.want || len(b.lists) > 0 || b.counts == 0 || b.counts > 2 {
			t.Errorf("%s:\n got %s, %v\nwant %s, with %d counts and %d lists", tt.statement, got, err, tt.want, b.counts, len(b.lists))
		}
	}
}

// Many lookups of a join list all runs instead.
func TestLookupsEnd(t *testing.T) {
	b := new(finishedRuns)
	for i := range 3 * maxLookups {
		id := fmt.Sprintf("run%03d", i)
		b.infos = append(b.infos, spool.Info{ID: spool.RunID(id), Engine: "process", State: spool.StateClosed, Labels: map[string]string{"n": id}})
	}
	rows, err := queryRows(t, b, "SELECT count(*), count(DISTINCT b.id) FROM runs a JOIN runs b ON b.id = a.id")
	if err != nil || fmt.Sprint(rows) != "[300 300]" || b.stats != maxLookups || len(b.lists) != 2 {
		t.Errorf("%q, %v with %d runs looked up and %d lists", rows, err, b.stats, len(b.lists))
	}
}

// What is not one statement that reads is refused, and errors say what there is.
func TestErrors(t *testing.T) {
	for statement, want := range map[string]string{
		"":                             "the statement is empty",
		" -- nothing\n /* here */ ":    "the statement is empty",
		"DELETE FROM runs":             "DELETE is refused",
		"/* x */ drop table runs":      "DROP is refused",
		"PRAGMA query_only = off":      "PRAGMA is refused",
		"ATTACH 'x.db' AS x":           "ATTACH is refused",
		"(SELECT 1)":                   `^\( is refused`,
		"SELECT 1; SELECT 2":           "two statements",
		"SELECT ';'; DROP TABLE runs":  "two statements",
		"SELECT 1 -- ;\n ; ATTACH 'x'": "two statements",
		"WITH x AS (SELECT 1) INSERT INTO runs SELECT * FROM x": "can only be read",
		"WITH x AS (SELECT 1) DELETE FROM runs":                 "can only be read",
		"SELECT * FROM pragma_table_info('runs')":               "can only be read",
		"SELECT load_extension('x')":                            "load_extension",
		"SELECT nme FROM runs r JOIN labels l ON l.run = r.id":  "no column nme: runs has id, name, engine, .*; labels has run, key, value$",
		`SELECT "build" FROM labels`:                            `no column "build": labels has`,
		"SELECT 1 FROM jobs":                                    "no table jobs: the tables are runs, labels, turns, asks, usage$",
		"SELECT hour(created) FROM runs":                        "no function hour: ",
		"SELECT id, FROM runs":                                  `^near "FROM": syntax error: $`,
	} {
		_, err := queryRows(t, newFinishedRuns(), statement)
		text := fmt.Sprint(err)
		var bad *Error
		if errors.As(err, &bad) {
			text += ": " + bad.Hint
		}
		if err == nil || !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("%s: %s, want %s", statement, text, want)
		}
	}
	for _, statement := range []string{"SELECT ';' ;", "SELECT 1 ; -- ;", "VALUES (1)", "EXPLAIN QUERY PLAN SELECT * FROM runs", `SELECT 1 AS "a;b"`, "SELECT 'it''s; fine'"} {
		if rows, err := queryRows(t, newFinishedRuns(), statement); err != nil || len(rows) == 0 {
			t.Errorf("%s: %q, %v", statement, rows, err)
		}
	}
}

// Statements end at their limits, and with their context.
func TestBounds(t *testing.T) {
	none := func([]string) error { return nil }
	drop := func([]any) error { return nil }
	o := options(t)
	o.Rows = 3
	var many *RowsError
	if err := Query(t.Context(), newFinishedRuns(), "SELECT count(*) FROM runs a, runs b", o, none, drop); !errors.As(err, &many) || many.Rows != 3 {
		t.Errorf("with 3 rows: %v", err)
	}
	if err := Query(t.Context(), newFinishedRuns(), "SELECT count(*) FROM runs a", o, none, drop); err != nil {
		t.Errorf("without rows in memory: %v", err)
	}
	const endless = "WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) "
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stop")
	err := Query(ctx, newFinishedRuns(), endless+"SELECT x FROM c", o, none, func(values []any) error {
		if values[0] == int64(1000) {
			cancel(stop)
		}
		return nil
	})
	if !errors.Is(err, stop) {
		t.Errorf("without end: %v", err)
	}
	large := fmt.Sprintf("SELECT zeroblob(%d)", maxValue+1)
	if err := Query(t.Context(), newFinishedRuns(), large, o, none, drop); err == nil || !strings.Contains(err.Error(), "too big") {
		t.Errorf("%s: %v", large, err)
	}
	if err := Query(t.Context(), newFinishedRuns(), endless+"SELECT x FROM c", o, none, func([]any) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("an error of the caller: %v", err)
	}
}

// A statement sorts more than fits into the memory that it may use for that.
func TestSorts(t *testing.T) {
	const size = 4 << 20
	statement := fmt.Sprintf("WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c LIMIT %d) SELECT x, zeroblob(%d) AS b FROM c ORDER BY b, x DESC", 2*maxMemory/size, size)
	var first any
	err := Query(t.Context(), newFinishedRuns(), statement, options(t), func([]string) error { return nil }, func(values []any) error {
		if first == nil {
			first = values[0]
		}
		return nil
	})
	if err != nil || first != int64(2*maxMemory/size) {
		t.Errorf("the first is %v, %v", first, err)
	}
}
