package httpapi

import (
	"math"
	"slices"
	"sync"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
	"github.com/spool-run/spool/internal/ledger"
	"github.com/spool-run/spool/render"
)

// operation is a row of the table: an address with a method.
type operation struct {
	method, pattern string
	name            string       // of the operation in the OpenAPI document
	scope           access.Scope // what it needs; empty means any subject
	open            bool         // needs no subject at all
	summary         string
	query           []param
	body            any      // a value of the type of the JSON body; nil takes none
	bytes           bool     // the body may be bytes instead
	status          int      // of a success
	answer          any      // a value of the type of the JSON answer; nil means none
	forms           []string // other content types of the answer
	problems        []string // beside those that every operation has
	protocol        string   // of the WebSocket that it is; empty for other addresses
	serve           func(*call) error
}

// Parameters that several operations take.
var (
	waitParam    = param{name: "wait_ms", kind: numberParam, max: math.MaxInt32, doc: "Milliseconds to wait, at most the server's limit"}
	afterParam   = param{name: "after", kind: numberParam, max: math.MaxInt64, cursor: true, doc: "Cursor: the number of the last event that the client has"}
	streamParam  = param{name: "stream", many: true, oneOf: []string{"stdout", "stderr", "pty"}, doc: "Only output of this stream"}
	filterParams = []param{
		{name: "live", kind: flagParam, doc: "Only runs that are not closed"},
		{name: "waiting", kind: flagParam, doc: "Only runs with open asks"},
		{name: "state", oneOf: []string{"queued", "running", "exited", "closed"}, doc: "Only runs in this state"},
		{name: "engine", doc: "Only runs of this engine"},
		{name: "outcome", oneOf: []string{"exited", "failed", "unknown"}, doc: "Only runs that ended this way"},
		{name: "name", doc: "Only runs with this name"},
		{name: "name_glob", doc: "Only runs whose name matches this pattern: * stands for any characters but a slash, ? for one"},
		{name: "prefix", doc: "Only runs whose id begins with this"},
		{name: "label", many: true, doc: "Only runs with this label: KEY:VALUE, or KEY for any value"},
		{name: "since", kind: timeParam, doc: "Only runs that are not closed or ended since then"},
		{name: "before", kind: timeParam, doc: "Only runs that were created before then"},
		{name: "oldest", kind: flagParam, doc: "The oldest run first instead of the newest"},
	}
	searchParams = []param{
		{name: "q", doc: "What to find, in a line"},
		{name: "mode", oneOf: []string{"text", "regex"}, doc: "Whether q is the text itself, which is the default, or a regular expression"},
		{name: "ignore_case", kind: flagParam, doc: "Whether a and A are the same"},
		{name: "limit", kind: numberParam, min: 1, most: func(l *Limits) int64 { return int64(l.Hits) }, doc: "Hits of a page"},
		{name: "cursor", doc: "The next of the page before"},
	}
)

// pageBytes is the limit of a page of events, and of one of changes.
func pageBytes(l *Limits) int64 { return int64(l.Page) }

func params(groups ...[]param) []param {
	var all []param
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}

// table has all operations. Most programs that carry it serve none of them, so it is
// made at its first use.
var table struct {
	once       sync.Once
	operations []operation
}

// operations returns all operations.
func operations() []operation {
	table.once.Do(func() { table.operations = makeOperations() })
	return table.operations
}

func makeOperations() []operation {
	all := []operation{
		{method: "GET", pattern: "/v1/runs", name: "listRuns", scope: access.Read, summary: "List runs, newest first",
			query: params(filterParams, []param{
				{name: "limit", kind: numberParam, min: 1, most: func(l *Limits) int64 { return int64(l.List) }, doc: "Runs of a page; 100 without it"},
				{name: "cursor", cursor: true, doc: "The next of the page before"},
			}), status: 200, answer: RunList{}, problems: []string{"bad_cursor"}, serve: (*call).listRuns},
		{method: "POST", pattern: "/v1/runs", name: "startRun", scope: access.Start, summary: "Start a run",
			query: []param{waitParam}, body: spool.Spec{}, status: 201, answer: spool.Info{},
			problems: []string{"exists", "busy", "unsupported", "start_invalid", "start_not_found", "start_not_executable", "start_bad_format", "start_bad_cwd", "start_unsupported", "start_name_taken", "start_limit", "start_pty", "start_other", "no_space"},
			serve:    (*call).startRun},
		{method: "GET", pattern: "/v1/count", name: "countRuns", scope: access.Read, summary: "Count runs by their state",
			query: filterParams, status: 200, answer: RunCounts{}, problems: []string{"unsupported"}, serve: (*call).countRuns},
		{method: "GET", pattern: "/v1/find/{name}", name: "findRun", scope: access.Read, summary: "Find a run by its name or the beginning of its id",
			status: 307, problems: []string{"not_found", "ambiguous"}, serve: (*call).findRun},
		{method: "POST", pattern: "/v1/remove", name: "removeRuns", scope: access.Delete, summary: "Delete finished runs, all or none",
			body: RemoveRequest{}, status: 200, answer: spool.Removal{}, problems: []string{"not_found", "live", "unsupported"}, serve: (*call).removeRuns},
		{method: "GET", pattern: "/v1/storage", name: "getStorage", scope: access.Read, summary: "What runs take on disk",
			status: 200, answer: spool.Storage{}, problems: []string{"unsupported"}, serve: (*call).storage},
		{method: "GET", pattern: "/v1/resources", name: "getResources", scope: access.Read, summary: "What the processes of live runs use",
			query: []param{{name: "run", many: true, doc: "Only this run"}}, status: 200, answer: ResourceList{}, problems: []string{"unsupported", "not_found"}, serve: (*call).resources},

		{method: "GET", pattern: "/v1/watch", name: "watchRuns", scope: access.Read, summary: "The runs that the query selects, and then each that changes, as server-sent events without ids",
			query: filterParams, status: 200, forms: []string{formSSE}, problems: []string{"not_acceptable", "too_many_streams", "unsupported"}, serve: (*call).watch},
		{method: "GET", pattern: "/v1/asks", name: "listAsks", scope: access.Read, summary: "The open asks of all runs, the oldest first",
			query: []param{
				{name: "run", many: true, doc: "Only those of this run"}, {name: "kind", many: true, doc: "Only those of this kind"},
				{name: "since", doc: "With wait_ms, wait until the version is another one"}, waitParam,
			}, status: 200, answer: AskList{}, problems: []string{"unsupported"}, serve: (*call).asks},
		{method: "GET", pattern: "/v1/tails", name: "listTails", scope: access.Read, summary: "The last line of what runs wrote, or of what agents said",
			query: []param{{name: "run", many: true, doc: "A run; 1 to 100 of them"}}, status: 200, answer: TailList{}, serve: (*call).tails},
		{method: "GET", pattern: "/v1/presence/{run}", name: "getPresence", scope: access.Read, summary: "Who looks at a run, and who types into it",
			status: 200, answer: Presence{}, problems: []string{"not_found"}, serve: (*call).getPresence},
		{method: "PUT", pattern: "/v1/presence/{run}", name: "putPresence", scope: access.Read, summary: "Be at a run for 30 seconds, without a WebSocket that says so",
			body: GuestRequest{}, status: 200, answer: Presence{}, problems: []string{"not_found", "busy"}, serve: (*call).putPresence},
		{method: "GET", pattern: "/v1/stats", name: "getStats", scope: access.Read, summary: "What runs used, added up",
			query:  params([]param{{name: "by", doc: "How to group runs: engine, day (in UTC), name, subject, outcome, or label=KEY"}}, filterParams),
			status: 200, answer: RunStats{}, serve: (*call).stats},

		{method: "GET", pattern: "/v1/runs/{run}", name: "getRun", scope: access.Read, summary: "Describe a run, now or after something happened",
			query:  []param{waitParam, {name: "state", oneOf: []string{"closed"}, doc: "Wait until the run is closed"}, afterParam},
			status: 200, answer: spool.Info{}, problems: []string{"not_found", "bad_cursor"}, serve: (*call).statRun},
		{method: "PATCH", pattern: "/v1/runs/{run}", name: "renameRun", scope: access.Delete, summary: "Give a run another name",
			body: RenameRequest{}, status: 200, answer: spool.Info{}, problems: []string{"not_found", "exists", "unsupported"}, serve: (*call).renameRun},
		{method: "DELETE", pattern: "/v1/runs/{run}", name: "deleteRun", scope: access.Delete, summary: "Delete a finished run",
			status: 204, problems: []string{"not_found", "live", "unsupported"}, serve: (*call).deleteRun},
		{method: "POST", pattern: "/v1/runs/{run}/fork", name: "forkRun", scope: access.Start, summary: "Start a run with a copy of this one's state",
			query: []param{waitParam}, body: spool.Spec{}, status: 201, answer: spool.Info{}, problems: []string{"not_found", "start_invalid", "start_unsupported", "start_other"}, serve: (*call).forkRun},
		{method: "POST", pattern: "/v1/runs/{run}/control", name: "controlRun", scope: access.Control, summary: "Interrupt, signal, resize, stop, kill or restart a run",
			body: spool.Control{}, status: 202, answer: struct{}{}, problems: []string{"not_found", "ended", "unsupported"}, serve: (*call).controlRun},

		{method: "GET", pattern: "/v1/runs/{run}/ledger", name: "getLedger", scope: access.Read, summary: "What a run used",
			status: 200, answer: ledger.Entry{}, problems: []string{"not_found"}, serve: (*call).ledger},

		{method: "GET", pattern: "/v1/runs/{run}/events", name: "getEvents", scope: access.Read, summary: "The events of a run: a page of JSON, or a stream of server-sent events or lines",
			query: []param{
				{name: "after", kind: numberParam, min: fromNow, max: math.MaxInt64, cursor: true, doc: "Cursor: the number of the last event that the client has; -1 means only what comes"},
				{name: "tail_bytes", kind: numberParam, max: math.MaxInt64, doc: "Begin with the event in which the last bytes of output begin, instead of after"},
				{name: "max_bytes", kind: numberParam, min: 1, most: pageBytes, doc: "Size of a page; 1 MiB without it"},
				waitParam,
				{name: "kind", many: true, doc: "Only events of this kind"},
				{name: "turn", kind: numberParam, min: 1, max: math.MaxInt64, doc: "Only events of this turn"},
				{name: "named", kind: flagParam, doc: "Give server-sent events their kind as event type"},
				{name: "base64", kind: flagParam, doc: "Give the bytes of the events of a stream as base64, also where they are UTF-8"},
				{name: "heartbeat_ms", kind: numberParam, min: 100, max: math.MaxInt32, doc: "An empty line after so much silence in a stream of lines"},
			}, status: 200, answer: EventPage{}, forms: []string{formSSE, formNDJSON}, problems: []string{"not_found", "bad_cursor", "not_acceptable", "too_many_streams"}, serve: (*call).events},
		{method: "GET", pattern: "/v1/runs/{run}/events/{seq}", name: "getEvent", scope: access.Read, summary: "One event",
			status: 200, answer: spool.Event{}, problems: []string{"not_found", "no_event", "trimmed"}, serve: (*call).event},
		{method: "GET", pattern: "/v1/runs/{run}/events/{seq}/forms/{type}/{subtype}", name: "getForm", scope: access.Read, summary: "One form of a display or a result",
			query:  []param{{name: "scripts", kind: flagParam, doc: "Whether HTML and SVG may run scripts, with an origin of their own and without a network"}},
			status: 200, forms: []string{"*/*"}, problems: []string{"not_found", "no_event", "trimmed", "no_form", "too_large"}, serve: (*call).form},
		{method: "GET", pattern: "/v1/runs/{run}/output", name: "getOutput", scope: access.Read, summary: "What a run wrote, byte for byte",
			query: []param{streamParam, afterParam,
				{name: "tail_bytes", kind: numberParam, max: math.MaxInt64, doc: "Only the last bytes, instead of after"},
				{name: "skip_bytes", kind: numberParam, max: math.MaxInt64, doc: "Pass over so many bytes: to go on after a cut"},
				{name: "follow", kind: flagParam, doc: "Go on until the run is closed"},
				{name: "ansi", oneOf: []string{"keep", "strip"}, doc: "Whether escape sequences stay, which is the default"},
			}, status: 200, forms: []string{"application/octet-stream"}, problems: []string{"not_found", "bad_cursor", "too_many_streams"}, serve: (*call).output},
		{method: "GET", pattern: "/v1/runs/{run}/blobs/{digest}", name: "getBlob", scope: access.Read, summary: "A large value that an event refers to",
			query:  []param{{name: "type", doc: "The content type, if it is a harmless one"}},
			status: 200, forms: []string{"*/*"}, problems: []string{"not_found", "too_large"}, serve: (*call).blob},
		{method: "GET", pattern: "/v1/runs/{run}/transcript", name: "getTranscript", scope: access.Read, summary: "What a person reads of a log, within a budget",
			query: []param{{name: "budget_tokens", kind: numberParam, min: 1, max: 1 << 24, doc: "Size, about; 8,000 tokens without it"}, afterParam,
				{name: "stream", oneOf: []string{"stdout", "stderr", "pty"}, doc: "Only output of this stream"}},
			status: 200, answer: render.Excerpt{}, forms: []string{"text/plain"}, problems: []string{"not_found", "bad_cursor", "not_acceptable"}, serve: (*call).transcript},
		{method: "GET", pattern: "/v1/runs/{run}/search", name: "searchRun", scope: access.Read, summary: "Find lines in the output of a run",
			query: params(searchParams, []param{{name: "from", kind: numberParam, min: 1, max: math.MaxInt64, doc: "Only lines of output from this number on"}}), status: 200, answer: RunSearch{}, forms: []string{formNDJSON}, problems: []string{"not_found", "not_acceptable", "too_many_streams"}, serve: (*call).searchRun},
		{method: "GET", pattern: "/v1/runs/{run}/index", name: "getIndex", scope: access.Read, summary: "Where in the log of a run its output is",
			query: []param{{name: "wait_ms", kind: numberParam, max: math.MaxInt32, doc: "Milliseconds to read before the answer, if the log is long; 250 without it"}}, status: 200, answer: LogIndex{}, problems: []string{"not_found"}, serve: (*call).index},
		{method: "GET", pattern: "/v1/runs/{run}/lines", name: "getLines", scope: access.Read, summary: "Lines of the output of a run, by their number, an event or a time",
			query: []param{
				{name: "from", kind: numberParam, min: math.MinInt64, max: math.MaxInt64, doc: "The first line: 1, 2, 3 …; -1 is the last, -2 the one before it"},
				{name: "seq", kind: numberParam, min: 1, max: math.MaxInt64, cursor: true, doc: "Begin with the line in which the output of this event begins"},
				{name: "time", kind: timeParam, doc: "Begin with the first line since then"},
				{name: "count", kind: numberParam, min: 1, most: func(l *Limits) int64 { return int64(l.Lines) }, doc: "How many lines; as many as the server gives without it"},
				{name: "quick", kind: flagParam, doc: "With a negative from: answer at once. If much of the log was not read yet, lines are numbered from the end: -1 is the last"},
				streamParam,
			}, status: 200, answer: LinePage{}, problems: []string{"not_found", "bad_cursor"}, serve: (*call).lines},
		{method: "GET", pattern: "/v1/runs/{run}/screen", name: "getScreen", scope: access.Read, summary: "What the terminal of a run shows, now or after any event",
			query: []param{
				{name: "at", kind: numberParam, min: 1, max: math.MaxInt64, cursor: true, doc: "After this event; the last without it"},
				{name: "format", oneOf: []string{"ansi", "text"}, doc: "The bytes that draw it, which is the default, or the text of the rows"},
				{name: "exact", kind: flagParam, doc: "Read as much of the log as that needs, instead of answering at once"},
				{name: "scrollback", kind: numberParam, most: func(l *Limits) int64 { return int64(l.Scrollback) }, doc: "Add so many of the lines that went off its top"},
			}, status: 200, answer: TerminalScreen{}, problems: []string{"not_found", "bad_cursor", "unsupported"}, serve: (*call).screen},
		{method: "GET", pattern: "/v1/search", name: "searchRuns", scope: access.Read, summary: "Find lines in the output of all runs",
			query:  params(searchParams, filterParams, []param{{name: "run", many: true, doc: "Only this run"}}),
			status: 200, answer: SearchPage{}, problems: []string{"not_found"}, serve: (*call).searchAll},

		{method: "POST", pattern: "/v1/runs/{run}/input", name: "sendInput", scope: access.Input, summary: "Send bytes to standard input, or another input as JSON",
			query: []param{{name: "id", doc: "Makes it idempotent: an id that was accepted is not applied again"}, {name: "eof", kind: flagParam, doc: "Nothing comes after these bytes"}},
			body:  spool.Input{}, bytes: true, status: 202, answer: spool.Receipt{}, problems: []string{"not_found", "input_closed", "not_asked", "not_retyped", "queue_full", "unsupported"}, serve: (*call).input},
		{method: "GET", pattern: "/v1/runs/{run}/turns", name: "listTurns", scope: access.Read, summary: "List the turns of a run",
			query:  []param{afterParam, {name: "limit", kind: numberParam, min: 1, max: maxTurns, doc: "Turns of a page; 100 without it"}},
			status: 200, answer: TurnList{}, problems: []string{"not_found", "bad_cursor"}, serve: (*call).listTurns},
		{method: "POST", pattern: "/v1/runs/{run}/turns", name: "beginTurn", scope: access.Input, summary: "Run a cell, or give an agent a prompt; the answer may be a stream of the events of the turn",
			query: []param{waitParam}, body: TurnRequest{}, status: 201, answer: TurnInfo{}, forms: []string{formSSE}, problems: []string{"not_found", "input_closed", "ended", "queue_full", "unsupported", "not_acceptable", "too_many_streams"}, serve: (*call).beginTurn},
		{method: "GET", pattern: "/v1/runs/{run}/turns/{seq}", name: "getTurn", scope: access.Read, summary: "Describe a turn, now or after its end, or stream its events",
			query: []param{waitParam}, status: 200, answer: TurnInfo{}, forms: []string{formSSE}, problems: []string{"not_found", "no_turn", "not_acceptable", "too_many_streams"}, serve: (*call).getTurn},
		{method: "POST", pattern: "/v1/runs/{run}/asks/{seq}", name: "answerAsk", scope: access.Answer, summary: "Answer an ask; the first answer counts",
			body: AnswerRequest{}, status: 200, answer: struct{}{}, problems: []string{"not_found", "no_event", "not_asked", "not_retyped", "input_closed", "unsupported"}, serve: (*call).answer},
		{method: "POST", pattern: "/v1/runs/{run}/inspect", name: "inspectRun", scope: access.Input, summary: "Ask a live interpreter for completions or a description",
			body: map[string]any{}, status: 200, answer: map[string]any{}, problems: []string{"not_found", "busy", "ended", "unsupported"}, serve: (*call).inspect},

		{method: "GET", pattern: "/v1/runs/{run}/changes", name: "listChanges", scope: access.Read, summary: "What a run changed in its workspace",
			query: []param{{name: "patch", kind: flagParam, doc: "Add the texts of the differences"}, {name: "after", doc: "The path of the last change of the page before"},
				{name: "max_bytes", kind: numberParam, min: 1, most: pageBytes, doc: "About the size of a page"}},
			status: 200, answer: spool.ChangePage{}, problems: []string{"not_found", "unsupported"}, serve: (*call).changes},
		{method: "POST", pattern: "/v1/runs/{run}/apply", name: "applyChanges", scope: access.Control, summary: "Make the changes of a run in its directory",
			body: ApplyRequest{}, status: 200, answer: spool.ChangePage{}, problems: []string{"not_found", "exists", "busy", "unsupported"}, serve: (*call).apply},
		{method: "POST", pattern: "/v1/runs/{run}/discard", name: "discardChanges", scope: access.Delete, summary: "Delete the changes of a run",
			status: 204, problems: []string{"not_found", "busy", "unsupported"}, serve: (*call).discard},

		{method: "GET", pattern: "/v1/rpc", name: "connect", scope: "", protocol: "spool.v1", summary: "A WebSocket that speaks the run/* protocol; each of its methods needs a scope of its own",
			status: 101, problems: []string{"too_many_streams", "unsupported", "upgrade"}, serve: (*call).connect},
		{method: "GET", pattern: "/v1/agents", name: "listAgents", scope: access.Read, summary: "List the coding agents that the server can start, installed or not",
			status: 200, answer: AgentList{}, problems: []string{"unsupported"}, serve: (*call).listAgents},
		{method: "GET", pattern: "/v1/nodes", name: "listNodes", scope: access.Read, summary: "List the nodes of the cluster",
			status: 200, answer: NodeList{}, problems: []string{"unsupported"}, serve: (*call).listNodes},
		{method: "GET", pattern: "/v1/server", name: "getServer", summary: "Describe the server and who asks", status: 200, answer: ServerInfo{}, serve: (*call).serverInfo},
		{method: "GET", pattern: "/v1/problems/{code}", name: "explainProblem", open: true, summary: "Explain a problem", status: 200, forms: []string{"text/plain"}, problems: []string{"no_route"}, serve: (*call).explain},
		{method: "GET", pattern: "/openapi.json", name: "getDocument", open: true, summary: "This document", status: 200, answer: map[string]any{}, serve: (*call).getDocument},
		{method: "GET", pattern: "/healthz", name: "getHealth", open: true, summary: "Whether the server lives", status: 200, forms: []string{"text/plain"}, serve: (*call).healthy},
		{method: "GET", pattern: "/readyz", name: "getReady", open: true, summary: "Whether the server reaches its runs", status: 200, forms: []string{"text/plain"}, problems: []string{"closing", "backend_lost"}, serve: (*call).ready},
	}
	all = append(all, attachOperation(), exportOperation())
	return slices.Concat(all, sessionOperations(), accessOperations(), probeOperations(), adminOperations())
}
