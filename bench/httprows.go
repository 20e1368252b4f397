package main

// The subjects beside which the HTTP server is measured, by the names of the peers.
const (
	subjectSandboxAgent  = "sandbox-agent"
	subjectJupyterServer = "jupyter"
	subjectWetty         = "wetty"
	// subjectDesktopCommander is a server of tools for models.
	subjectDesktopCommander = "desktop-commander"
)

// httpRows is the table of spool serve.
var httpRows = []row{
	{label: "first event of a finished run, p50", metric: "http.first", stat: median, unit: unitTime, goal: bound{atMost: 0.0003}},
	{label: "first event of a finished run, p99", metric: "http.first", stat: p99, unit: unitTime, goal: bound{atMost: 0.002}},
	{label: "first event, beside a GET of the output by sandbox-agent, p50", metric: "http.first", stat: median, unit: unitTime, ratio: faster, goal: bound{atLeast: 4}, otherSubject: subjectSandboxAgent, otherMetric: "http.get"},
	{label: "first event, beside a GET of the status of jupyter-server, p50", metric: "http.first", stat: median, unit: unitTime, ratio: faster, goal: bound{atLeast: 4}, otherSubject: subjectJupyterServer, otherMetric: "http.get"},

	{label: "POST of a run to its first output as an event, p50", metric: "http.start", stat: median, unit: unitTime, goal: bound{atMost: 0.002}},
	{label: "POST of a run to its first output as an event, p99", metric: "http.start", stat: p99, unit: unitTime, goal: bound{atMost: 0.008}},
	{label: "the same, more than over /v1/rpc, p50", metric: "http.start.extra", stat: median, unit: unitTime, goal: bound{atMost: 0.0005}},
	{label: "the same, beside codex exec-server, p50", metric: "http.start", stat: median, unit: unitTime, ratio: faster, otherSubject: subjectCodex},
	{label: "the same, beside a terminal of jupyter-server, p50", metric: "http.start", stat: median, unit: unitTime, ratio: faster, otherSubject: subjectJupyterServer},
	{label: "the same, beside a terminal of wetty, p50", metric: "http.start", stat: median, unit: unitTime, ratio: faster, otherSubject: subjectWetty},

	{label: "1 GiB to a reader of server-sent events", metric: "http.sse.rate", stat: median, unit: unitRate, goal: bound{atLeast: 300e6}, otherSubject: subjectCodex, otherMetric: "bulk.rate"},
	{label: "1 GiB of server-sent events, server CPU per GiB", metric: "http.sse.cpu", stat: median, unit: unitCPU, goal: bound{atMost: 4}, otherSubject: subjectCodex, otherMetric: "bulk.cpu"},
	{label: "1 GiB to a reader of lines", metric: "http.ndjson.rate", stat: median, unit: unitRate, goal: bound{atLeast: 300e6}, otherSubject: subjectCodex, otherMetric: "bulk.rate"},
	{label: "1 GiB of lines, server CPU per GiB", metric: "http.ndjson.cpu", stat: median, unit: unitCPU, goal: bound{atMost: 4}, otherSubject: subjectCodex, otherMetric: "bulk.cpu"},
	{label: "1 GiB over /v1/rpc", metric: "http.rpc.rate", stat: median, unit: unitRate, goal: bound{atLeast: 800e6}, otherSubject: subjectCodex, otherMetric: "bulk.rate"},
	{label: "1 GiB over /v1/rpc, server CPU per GiB", metric: "http.rpc.cpu", stat: median, unit: unitCPU, otherSubject: subjectCodex, otherMetric: "bulk.cpu"},

	{label: "10,000 readers of one run, 2 events/s: event to receipt, p50", metric: "http.crowd.p50", stat: median, unit: unitTime},
	{label: "10,000 readers of one run, 2 events/s: event to receipt, p99", metric: "http.crowd.p99", stat: median, unit: unitTime, goal: bound{atMost: 0.25}},
	{label: "10,000 readers of one run, 2 events/s: processor time", metric: "http.crowd.core", stat: median, unit: unitShare, goal: bound{atMost: 0.5}},
	{label: "10,000 readers of one run, 2 events/s: memory of the server for each", metric: "http.crowd.each", stat: median, unit: unitBytes, goal: bound{atMost: 32 << 10}},
	{label: "10,000 readers of one run, 2 events/s: memory that is left 10 s after them", metric: "http.crowd.left", stat: median, unit: unitBytes, goal: bound{atMost: 8 << 20}},
	{label: "10,000 readers of one run, 2 events/s: files that are left open", metric: "http.crowd.files", stat: most, unit: unitCount, goal: bound{atMost: zero}},

	{label: "runs with a reader each, 10,000 if the keeper may open so many files", metric: "http.runs.count", stat: median, unit: unitCount},
	{label: "10,000 runs with a reader each, 2 events/s: event to receipt, p50", metric: "http.runs.p50", stat: median, unit: unitTime},
	{label: "10,000 runs with a reader each, 2 events/s: event to receipt, p99", metric: "http.runs.p99", stat: median, unit: unitTime, goal: bound{atMost: 0.25}},
	{label: "10,000 runs with a reader each, 2 events/s: processor time", metric: "http.runs.core", stat: median, unit: unitShare, goal: bound{atMost: 0.5}},
	{label: "10,000 runs with a reader each, 2 events/s: memory of the server for each", metric: "http.runs.each", stat: median, unit: unitBytes, goal: bound{atMost: 32 << 10}},
	{label: "10,000 runs with a reader each, 2 events/s: memory that is left 10 s after them", metric: "http.runs.left", stat: median, unit: unitBytes, goal: bound{atMost: 8 << 20}},
	{label: "10,000 runs with a reader each, 2 events/s: files that are left open", metric: "http.runs.files", stat: most, unit: unitCount, goal: bound{atMost: zero}},

	{label: "5,000 readers cut at once: until the last has events again", metric: "http.cut.again", stat: median, unit: unitTime, goal: bound{atMost: 5}},
	{label: "5,000 readers cut at once: events that are lost", metric: "http.cut.lost", stat: most, unit: unitCount, goal: bound{atMost: zero}},
	{label: "5,000 readers cut at once: events that come twice", metric: "http.cut.twice", stat: most, unit: unitCount, goal: bound{atMost: zero}},

	{label: "index of 1 GiB", metric: "http.index", stat: median, unit: unitTime, goal: bound{atMost: 1.5}},
	{label: "400 lines from anywhere in 1 GiB, p50", metric: "http.jump", stat: median, unit: unitTime},
	{label: "400 lines from anywhere in 1 GiB, p99", metric: "http.jump", stat: p99, unit: unitTime, goal: bound{atMost: 0.015}},
	{label: "search of 1 GiB for a text", metric: "http.search.text", stat: median, unit: unitRate, goal: bound{atLeast: 700e6}},
	{label: "search of 1 GiB for a text, ignoring case", metric: "http.search.folded", stat: median, unit: unitRate, goal: bound{atLeast: 400e6}},
	{label: "search of 1 GiB for a regular expression", metric: "http.search.regex", stat: median, unit: unitRate, goal: bound{atLeast: 60e6}},
	{label: "search of 1 GiB for a regular expression, first hits", metric: "http.search.first", stat: median, unit: unitTime, goal: bound{atMost: 0.2}},

	{label: "screen of a live terminal after 100 MB, at once", metric: "http.screen", stat: median, unit: unitTime, goal: bound{atMost: 0.05}},
	{label: "screen of a live terminal after 100 MB, exact, the first", metric: "http.screen.first", stat: median, unit: unitTime},
	{label: "screen of a live terminal after 100 MB, exact, from then on", metric: "http.screen.exact", stat: median, unit: unitTime, goal: bound{atMost: 1.5}},

	{label: "a model runs true: over HTTP, p50", metric: "http.mcp", stat: median, unit: unitTime, goal: bound{atMost: 0.0025}, otherSubject: subjectDesktopCommander, otherMetric: "http.mcp.stdio"},
	{label: "a model runs true: over stdin and stdout, p50", metric: "http.mcp.stdio", stat: median, unit: unitTime, goal: bound{atMost: 0.0015}, otherSubject: subjectDesktopCommander},

	{label: "through nginx as it is, an event later than directly, latest", metric: "http.proxy.nginx", stat: most, unit: unitTime, goal: bound{atMost: 0.05}},
	{label: "through Caddy as it is, an event later than directly, latest", metric: "http.proxy.caddy", stat: most, unit: unitTime, goal: bound{atMost: 0.05}},
	{label: "through HAProxy as it is, an event later than directly, latest", metric: "http.proxy.haproxy", stat: most, unit: unitTime, goal: bound{atMost: 0.05}},

	{label: "launch to ready", metric: "http.ready", stat: median, unit: unitTime, goal: bound{atMost: 0.025}},
	{label: "launch to ready, beside sandbox-agent", metric: "http.ready", stat: median, unit: unitTime, ratio: faster, otherSubject: subjectSandboxAgent},
	{label: "resident memory, idle", metric: "http.idle", stat: median, unit: unitBytes, goal: bound{atMost: 26e6}, otherSubject: subjectSandboxAgent},
	{label: "what the server adds to a program", metric: "http.binary", stat: median, unit: unitBytes, goal: bound{atMost: 9e6}},

	{label: "the first 100 of 10,000 runs", metric: "http.list", stat: median, unit: unitTime, goal: bound{atMost: 0.03}},
	{label: "all of 10,000 runs, in ten pages", metric: "http.list.all", stat: median, unit: unitTime},
	{label: "start of a run among 10,000, until a watcher sees it", metric: "http.change", stat: most, unit: unitTime, goal: bound{atMost: 0.3}},
}
