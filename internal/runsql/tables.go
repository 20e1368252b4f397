package runsql

import "slices"

// Column is a column of a table.
type Column struct{ Name, Type, About string }

// Table is a table that statements read. What is not known is NULL.
type Table struct {
	Name, About string
	Columns     []Column
}

// tokenColumns are those of what an agent used.
var tokenColumns = []Column{
	{"input_tokens", "integer", "tokens given to the model"}, {"cache_read_tokens", "integer", "of these, read from its cache"},
	{"cache_write_tokens", "integer", "of these, written to its cache"}, {"output_tokens", "integer", "tokens that it returned"},
	{"reasoning_tokens", "integer", "of these, of its reasoning"}, {"cost_usd", "real", "cost that the agent reports"}, {"steps", "integer", "requests to the model"},
}

// Tables are all tables, in the order in which they are shown.
var Tables = []Table{
	{"runs", "one row per run", append([]Column{
		{"id", "text", "id of the run"}, {"name", "text", "its name"}, {"engine", "text", "process, kernel, sandbox or agent"},
		{"subject", "text", "who started it; NULL for the owner"}, {"state", "text", "running, exited or closed"},
		{"outcome", "text", "exited, failed or unknown; NULL before the end"}, {"code", "integer", "exit code"}, {"signal", "text", "signal that ended it"},
		{"reason", "text", "why it failed, or which limit ended it"}, {"failed", "integer", "1 if it ended, and not well"},
		{"created", "text", "time of the start, as 2026-11-15T01:02:03.000000Z"}, {"ended", "text", "time of the end"},
		{"wall_ms", "integer", "time from start to end, or until now"},
		{"user_us", "integer", "processor time of its programs in microseconds"}, {"system_us", "integer", "of the kernel for them"},
		{"peak_memory_bytes", "integer", "most memory that one process held"}, {"input_bytes", "integer", "input that it accepted"},
		{"output_bytes", "integer", "output in its log"}, {"turns", "integer", "cells and prompts"},
		{"limits", "text", "limits that it met, separated by commas"}, {"title", "text", "first line of its last cell or prompt"},
		{"turn_outcome", "text", "how its last turn ended"}, {"cwd", "text", "its directory"}, {"command", "text", "its command"},
	}, tokenColumns...)},
	{"labels", "one row per label of a run", []Column{{"run", "text", "id of the run"}, {"key", "text", "name of the label"}, {"value", "text", "its value"}}},
	{"turns", "one row per turn of a kernel, a sandbox or an agent", []Column{
		{"run", "text", "id of the run"}, {"turn", "integer", "seq of the input that began it"}, {"kind", "text", "cell or prompt"},
		{"began", "text", "when the input came"}, {"ended", "text", "when it was done"}, {"outcome", "text", "ok, error, timeout …"},
		{"error", "text", "why it did not end well"}, {"error_class", "text", "a short name of that"}, {"duration_ms", "integer", "how long it took, as the engine says"},
	}},
	{"asks", "one row per ask", []Column{
		{"run", "text", "id of the run"}, {"ask", "integer", "seq of the ask"}, {"turn", "integer", "turn that asked"}, {"kind", "text", "what it is about"},
		{"name", "text", "tool or file that it names"}, {"prompt", "text", "the question"}, {"asked", "text", "when"}, {"closed", "text", "when it was answered, or its turn ended; NULL while it waits"},
	}},
	{"usage", "one row per turn of an agent that says what it used", append([]Column{
		{"run", "text", "id of the run"}, {"turn", "integer", "seq of the prompt"}, {"time", "text", "when the turn was done"},
	}, tokenColumns...)},
}

// column returns the number of a column, or -1.
func (t *Table) column(name string) int {
	return slices.IndexFunc(t.Columns, func(c Column) bool { return c.Name == name })
}
