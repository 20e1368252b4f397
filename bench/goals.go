package main

import "math"

// ratio is how two values of a row are compared.
type ratio int

const (
	noRatio  ratio = iota
	faster         // the other value divided by Spool's
	fraction       // Spool's value divided by the other
)

// bound is a goal for a ratio, or for the value itself if there is no ratio.
type bound struct {
	atLeast, atMost float64 // zero means no goal
}

// verdict is whether a goal is met.
type verdict int

const (
	missed verdict = iota
	near           // within the tolerance
	met
)

// tolerance is the part of a goal by which a value may miss it and count as met:
// less than the speed of a machine varies.
const tolerance = 0.05

func (v verdict) String() string { return [...]string{"MISSED", "ok within 5 %", "ok"}[v] }

// verdict judges a value.
func (b bound) verdict(v float64) verdict {
	by := func(factor float64) bool {
		if b.atMost > 0 {
			return v <= b.atMost*factor
		}
		return v >= b.atLeast/factor
	}
	switch {
	case by(1):
		return met
	case by(1 + tolerance):
		return near
	}
	return missed
}

// format formats the goal.
func (b bound) format(value func(float64) string) string {
	if b.atMost > 0 {
		return "≤ " + value(b.atMost)
	}
	return "≥ " + value(b.atLeast)
}

// row is a line of a table: one metric of Spool beside another series.
type row struct {
	label  string
	metric string
	stat   stat
	unit   unit
	ratio  ratio
	goal   bound

	// The other series, if it is not the same metric of codex.
	otherSubject string
	otherMetric  string
}

// other returns the series that the row compares with Spool's.
func (r *row) other() (subject, metric string) {
	subject, metric = r.otherSubject, r.otherMetric
	if subject == "" {
		subject = subjectCodex
	}
	if metric == "" {
		metric = r.metric
	}
	return subject, metric
}

// zero is the goal of a count that must be zero.
const zero = math.SmallestNonzeroFloat64

// flat is how much a server's memory may grow while a client does not read.
const flat = 32 << 20

// besideCodex is the table of Spool and codex, over the same protocol.
var besideCodex = []row{
	{label: "start to closed, ordinary client, p50", metric: "start.ordinary", stat: median, unit: unitTime, ratio: faster, goal: bound{atLeast: 30}},
	{label: "start to closed, ordinary client, p99", metric: "start.ordinary", stat: p99, unit: unitTime, ratio: faster},
	{label: "start to closed, quick acknowledgements, p50", metric: "start.quick", stat: median, unit: unitTime, ratio: faster, goal: bound{atLeast: 4}},
	{label: "start to closed, quick acknowledgements, p99", metric: "start.quick", stat: p99, unit: unitTime, ratio: faster},
	{label: "starts per second, 16 in flight", metric: "starts", stat: median, unit: unitCount, ratio: fraction, goal: bound{atLeast: 8}},
	{label: "1 GiB of output", metric: "bulk.rate", stat: median, unit: unitRate, ratio: fraction, goal: bound{atLeast: 1.5}},
	{label: "1 GiB of output, server CPU per GiB", metric: "bulk.cpu", stat: median, unit: unitCPU, ratio: fraction, goal: bound{atMost: 1. / 2}},
	{label: "1 GiB of output, bytes per message", metric: "bulk.chunk", stat: median, unit: unitCount, ratio: fraction},
	{label: "200 processes at once", metric: "crowd", stat: median, unit: unitTime, ratio: faster},
	{label: "100-byte writes, messages", metric: "chatty.messages", stat: median, unit: unitCount, ratio: fraction, goal: bound{atMost: 1. / 20}},
	{label: "100-byte writes, server CPU", metric: "chatty.cpu", stat: median, unit: unitCPU, ratio: fraction, goal: bound{atMost: 1}},
	{label: "100-byte writes, start to closed", metric: "chatty.time", stat: median, unit: unitTime, ratio: faster, goal: bound{atLeast: 1}},
	{label: "100-byte writes 10 µs apart, messages", metric: "working.messages", stat: median, unit: unitCount, ratio: fraction},
	{label: "100-byte writes 10 µs apart, server CPU", metric: "working.cpu", stat: median, unit: unitCPU, ratio: fraction},
	{label: "start to first byte", metric: "chatty.first", stat: median, unit: unitTime, ratio: faster, goal: bound{atLeast: 1}},
	{label: "launch to ready, median", metric: "ready", stat: median, unit: unitTime, ratio: faster, goal: bound{atLeast: 1}},
	{label: "launch to ready, best", metric: "ready", stat: lowest, unit: unitTime, ratio: faster},
	{label: "resident memory, idle", metric: "rss.idle", stat: median, unit: unitBytes, ratio: fraction, goal: bound{atMost: 1. / 4}},
	{label: "resident memory, after all this", metric: "rss.loaded", stat: median, unit: unitBytes, ratio: fraction},
	{label: "200 MB to a client that does not read, memory gained", metric: "stalled.growth", stat: most, unit: unitBytes, goal: bound{atMost: flat}},
	{label: "200 MB to a client that does not read, written after", metric: "stalled.written", stat: median, unit: unitTime},
}

// spoolAlone is the table of Spool beside the operating system and itself.
var spoolAlone = []row{
	{label: "start to closed, ordinary client, beside os/exec, p50", metric: "start.ordinary", stat: median, unit: unitTime, ratio: fraction, goal: bound{atMost: 2.5},
		otherSubject: subjectFloor, otherMetric: "start"},
	{label: "start to closed, local handle, beside os/exec, p50", metric: "start.local", stat: median, unit: unitTime, ratio: fraction,
		otherSubject: subjectFloor, otherMetric: "start"},
	{label: "start to closed, own client, beside os/exec, p50", metric: "start.client", stat: median, unit: unitTime, ratio: fraction,
		otherSubject: subjectFloor, otherMetric: "start"},
	{label: "1 GiB of output, own client, beside codex", metric: "client.rate", stat: median, unit: unitRate, ratio: fraction, goal: bound{atLeast: 4},
		otherMetric: "bulk.rate"},
	{label: "1 GiB of output, own client, server CPU per GiB, beside codex", metric: "client.cpu", stat: median, unit: unitCPU, ratio: fraction,
		otherMetric: "bulk.cpu"},
	{label: "journal, 64 KiB events, append", metric: "journal.64k.append.rate", stat: median, unit: unitRate},
	{label: "journal, 64 KiB events, replay", metric: "journal.64k.replay.rate", stat: median, unit: unitRate},
	{label: "journal, 100-byte events, append per second", metric: "journal.100.append", stat: median, unit: unitCount},
	{label: "journal, 100-byte events, replay per second", metric: "journal.100.replay", stat: median, unit: unitCount},
	{label: "search of 10 GB of finished logs for a rare word", metric: "find", stat: median, unit: unitTime, goal: bound{atMost: 1}},
	{label: "search of 10 GB for a rare word, ignoring case", metric: "find.case", stat: median, unit: unitTime, goal: bound{atMost: 1}},
	{label: "search of 10 GB for a regular expression", metric: "find.regexp", stat: median, unit: unitTime, goal: bound{atMost: 1}},
	{label: "search of 10 GB for an expression without a certain text", metric: "find.open", stat: median, unit: unitTime},
	{label: "search of 10 GB for a rare word, by a server", metric: "find.server", stat: median, unit: unitTime, goal: bound{atMost: 1}},
	{label: "size of a compressed log of text, to what it was", metric: "compressed.part", stat: median, unit: unitCount, goal: bound{atMost: 0.2}},
	{label: "follow a compressed log, beside one that is not", metric: "follow.compressed", stat: median, unit: unitRate, ratio: fraction, goal: bound{atLeast: 0.7},
		otherSubject: subjectSpool, otherMetric: "follow.raw"},
	{label: "stream a compressed log, beside one that is not", metric: "stream.compressed", stat: median, unit: unitRate, ratio: fraction, goal: bound{atLeast: 0.7},
		otherSubject: subjectSpool, otherMetric: "stream.raw"},
	{label: "spool logs of a compressed log, beside one that is not", metric: "logs.compressed", stat: median, unit: unitRate, ratio: fraction, goal: bound{atLeast: 0.7},
		otherSubject: subjectSpool, otherMetric: "logs.raw"},
	{label: "follow a compressed log, per second of processor time, beside one that is not", metric: "follow.cpu.compressed", stat: median, unit: unitRate, ratio: fraction,
		otherSubject: subjectSpool, otherMetric: "follow.cpu.raw"},
	{label: "stream a compressed log, per second of processor time, beside one that is not", metric: "stream.cpu.compressed", stat: median, unit: unitRate, ratio: fraction,
		otherSubject: subjectSpool, otherMetric: "stream.cpu.raw"},
	{label: "spool logs of a compressed log, per second of processor time, beside one that is not", metric: "logs.cpu.compressed", stat: median, unit: unitRate, ratio: fraction,
		otherSubject: subjectSpool, otherMetric: "logs.cpu.raw"},
	{label: "start to closed through a server, keeper beside in process, p50", metric: "keeper.served", stat: median, unit: unitTime, ratio: fraction, goal: bound{atMost: 1.15},
		otherSubject: subjectSpool, otherMetric: "keeper.served.host"},
	{label: "start to closed, handle, keeper beside in process, p50", metric: "keeper.start", stat: median, unit: unitTime, ratio: fraction,
		otherSubject: subjectSpool, otherMetric: "keeper.start.host"},
	{label: "1 GiB of output, keeper beside in process", metric: "keeper.rate", stat: median, unit: unitRate, ratio: fraction, goal: bound{atLeast: 0.9},
		otherSubject: subjectSpool, otherMetric: "keeper.rate.host"},
	{label: "resident memory of a keeper", metric: "keeper.rss", stat: median, unit: unitBytes, goal: bound{atMost: 15e6}},
	{label: "resident memory of server and keeper, idle", metric: "resident.idle", stat: median, unit: unitBytes, goal: bound{atMost: 20e6}},
	{label: "resident memory after 1,000 runs", metric: "resident.runs", stat: median, unit: unitBytes},
	{label: "resident memory after 1,000 runs and 10 s", metric: "resident.runs.quiet", stat: median, unit: unitBytes, goal: bound{atMost: 25e6}},
	{label: "resident memory, most with 100 readers", metric: "resident.readers.100", stat: median, unit: unitBytes, goal: bound{atMost: 60e6}},
	{label: "resident memory 10 s after 100 readers", metric: "resident.readers.100.quiet", stat: median, unit: unitBytes, goal: bound{atMost: 25e6}},
	{label: "resident memory, most with 400 readers", metric: "resident.readers.400", stat: median, unit: unitBytes, goal: bound{atMost: 60e6}},
	{label: "resident memory 10 s after 400 readers", metric: "resident.readers.400.quiet", stat: median, unit: unitBytes, goal: bound{atMost: 25e6}},
	{label: "restart over 1,000 runs until the live one can be read", metric: "restart", stat: median, unit: unitTime, goal: bound{atMost: 0.1}},
	{label: "a process that 1,000 follow writes, beside one that 1 follows", metric: "readers.1000", stat: median, unit: unitRate, ratio: fraction, goal: bound{atLeast: 0.8},
		otherSubject: subjectSpool, otherMetric: "readers.1"},
	{label: "events delivered per second, 1,000 readers beside 1", metric: "readers.1000.delivered", stat: median, unit: unitCount, ratio: fraction,
		otherSubject: subjectSpool, otherMetric: "readers.1.delivered"},
	{label: "cluster: stat of a run of another node, more than of an own one, p50", metric: "cluster.stat.more", stat: median, unit: unitTime, goal: bound{atMost: 0.0006}},
	{label: "cluster: control of a run of another node, more than of an own one, p50", metric: "cluster.control.more", stat: median, unit: unitTime, goal: bound{atMost: 0.0006}},
	{label: "cluster: start to closed on another node, more than on an own machine, p50", metric: "cluster.start.more", stat: median, unit: unitTime, goal: bound{atMost: 0.0015}},
	{label: "cluster: a log through another node, beside directly", metric: "cluster.stream", stat: median, unit: unitRate, ratio: fraction, goal: bound{atLeast: 0.6},
		otherSubject: subjectSpool, otherMetric: "cluster.stream.direct"},
	{label: "cluster: processor time of an idle control node, more than of a server alone", metric: "cluster.idle.cpu.more", stat: median, unit: unitShare, goal: bound{atMost: 0.005}},
	{label: "cluster: processor time of a control node with 1,000 live runs, more than without", metric: "cluster.live.cpu", stat: median, unit: unitShare, goal: bound{atMost: 0.01}},
	{label: "cluster: first page of 100,000 runs of three nodes", metric: "cluster.list", stat: median, unit: unitTime, goal: bound{atMost: 0.05}},
	{label: "cluster: memory of a control node, more than of a server alone", metric: "cluster.rss.more", stat: median, unit: unitBytes, goal: bound{atMost: 30e6}},
	{label: "cluster: initialisation of NATS at the start of any command, p50", metric: "cluster.init", stat: median, unit: unitTime, goal: bound{atMost: 0.001}},
	{label: "cluster: a log through a relay, beside without one", metric: "cluster.relay", stat: median, unit: unitRate, ratio: fraction,
		otherSubject: subjectSpool, otherMetric: "cluster.relay.without"},
	{label: "cluster: a line in its mirror, after a reader has it, p50", metric: "cluster.mirror", stat: median, unit: unitTime},
	{label: "cluster: machine killed until its run is unknown", metric: "cluster.unknown", stat: median, unit: unitTime, goal: bound{atMost: 27}},
	{label: "1 GiB over the codex wire, beside what the client can decode", metric: "bulk.rate", stat: median, unit: unitRate, ratio: fraction,
		otherSubject: subjectFloor, otherMetric: "driver.64k"},
}

// kernels is the table of kernels. The ready times are compared with
// ipykernel's only way to start.
var kernels = []row{
	{label: "ready, forked with numpy, p50", metric: "kernel.ready", stat: median, unit: unitTime, ratio: faster, goal: bound{atLeast: 100}, otherSubject: subjectJupyter},
	{label: "ready, forked with numpy, p99", metric: "kernel.ready", stat: p99, unit: unitTime, ratio: faster, otherSubject: subjectJupyter},
	{label: "ready, cold, p50", metric: "kernel.cold", stat: median, unit: unitTime, ratio: faster, goal: bound{atLeast: 15}, otherSubject: subjectJupyter, otherMetric: "kernel.ready"},
	{label: "ready, cold, beside omp, p50", metric: "kernel.cold", stat: median, unit: unitTime, ratio: faster, otherSubject: subjectOMP},
	{label: "1+1, p50", metric: "kernel.cell", stat: median, unit: unitTime, ratio: faster, goal: bound{atLeast: 20}, otherSubject: subjectJupyter},
	{label: "1+1, p99", metric: "kernel.cell", stat: p99, unit: unitTime, ratio: faster, otherSubject: subjectJupyter},
	{label: "1+1, beside the bare runner of omp, p50", metric: "kernel.cell", stat: median, unit: unitTime, ratio: faster, goal: bound{atLeast: 1 / 1.3}, otherSubject: subjectOMP},
	{label: "100,000 prints", metric: "kernel.prints", stat: median, unit: unitTime, ratio: faster, goal: bound{atLeast: 1.5}, otherSubject: subjectJupyter},
	{label: "100,000 prints, beside omp", metric: "kernel.prints", stat: median, unit: unitTime, ratio: faster, otherSubject: subjectOMP},
	{label: "100 MB as 1 M lines", metric: "kernel.lines", stat: median, unit: unitTime, ratio: faster, goal: bound{atLeast: 2.5}, otherSubject: subjectJupyter},
	{label: "100 MB as 1 M lines, beside omp", metric: "kernel.lines", stat: median, unit: unitTime, ratio: faster, otherSubject: subjectOMP},
	{label: "100 MB as 1 M lines, memory gained", metric: "kernel.lines.growth", stat: most, unit: unitBytes, goal: bound{atMost: 16 << 20}, otherSubject: subjectJupyter},
	{label: "100 MB as 1 MB writes", metric: "kernel.writes", stat: median, unit: unitTime, ratio: faster, goal: bound{atLeast: 5}, otherSubject: subjectJupyter},
	{label: "100 MB as 1 MB writes, beside omp", metric: "kernel.writes", stat: median, unit: unitTime, ratio: faster, otherSubject: subjectOMP},
	{label: "100 MB as 1 MB writes, memory gained", metric: "kernel.writes.growth", stat: most, unit: unitBytes, goal: bound{atMost: 16 << 20}, otherSubject: subjectJupyter},
	{label: "print without line end or flush, until it is seen", metric: "kernel.first", stat: most, unit: unitTime, goal: bound{atMost: 0.05}, otherSubject: subjectJupyter},
	{label: "interrupt of a busy loop, p50", metric: "kernel.interrupt", stat: median, unit: unitTime, ratio: faster, goal: bound{atLeast: 5}, otherSubject: subjectJupyter},
	{label: "interrupt of a busy loop, beside omp, p50", metric: "kernel.interrupt", stat: median, unit: unitTime, ratio: faster, goal: bound{atLeast: 1. / 2}, otherSubject: subjectOMP},
	{label: "memory of an idle one, with numpy and pandas (others without)", metric: "kernel.pss", stat: median, unit: unitBytes, ratio: fraction, otherSubject: subjectJupyter},
	{label: "memory of an idle one, with numpy and pandas, most", metric: "kernel.pss", stat: most, unit: unitBytes, goal: bound{atMost: 8e6}, otherSubject: subjectJupyter},
	{label: "memory of 100, with what they share", metric: "kernel.pss.100", stat: most, unit: unitBytes, goal: bound{atMost: 0.9e9}, otherSubject: subjectJupyter},
}

// sandboxes is the table of sandboxes, beside Python without a sandbox and
// Pyodide as its documentation starts it.
var sandboxes = []row{
	{label: "embedded, new interpreter to first byte, p50", metric: "sandbox.first", stat: median, unit: unitTime, ratio: faster, goal: bound{atLeast: 10}, otherSubject: subjectNative},
	{label: "embedded, new interpreter to first byte, p99", metric: "sandbox.first", stat: p99, unit: unitTime, ratio: faster, otherSubject: subjectNative},
	{label: "embedded, new interpreters per second", metric: "sandbox.rate", stat: median, unit: unitCount, goal: bound{atLeast: 500}, otherSubject: subjectNative},
	{label: "embedded, memory of a live one", metric: "sandbox.memory", stat: median, unit: unitBytes, goal: bound{atMost: 1e6}, otherSubject: subjectNative},
	{label: "embedded, memory of its run in the host", metric: "sandbox.memory.host", stat: median, unit: unitBytes, otherSubject: subjectNative},
	{label: "embedded, live at once", metric: "sandbox.memory.live", stat: median, unit: unitCount, goal: bound{atLeast: 1000}, otherSubject: subjectNative},
	{label: "embedded, computing", metric: "sandbox.compute", stat: lowest, unit: unitTime, ratio: fraction, goal: bound{atMost: 4.5}, otherSubject: subjectNative},
	{label: "embedded, stopped after its limit, latest", metric: "sandbox.late", stat: most, unit: unitTime, goal: bound{atMost: 0.005}, otherSubject: subjectNative},
	{label: "embedded, first use of a machine", metric: "sandbox.cold", stat: most, unit: unitTime, goal: bound{atMost: 5}, otherSubject: subjectNative},
	{label: "embedded, stat of a file", metric: "sandbox.stat", stat: median, unit: unitTime, goal: bound{atMost: 20e-6}, otherSubject: subjectNative},
	{label: "pyodide, new interpreter to first byte, beside node, p50", metric: "pyodide.first", stat: median, unit: unitTime, ratio: faster, goal: bound{atLeast: 100}, otherSubject: subjectNode},
	{label: "pyodide, new interpreter to first byte, p99", metric: "pyodide.first", stat: p99, unit: unitTime, otherSubject: subjectNode},
	{label: "pyodide with numpy, new interpreter to first byte, p50", metric: "pyodide.numpy", stat: median, unit: unitTime, goal: bound{atMost: 0.015}, otherSubject: subjectNode},
	{label: "pyodide, made on demand, to first byte, p50", metric: "pyodide.first.demand", stat: median, unit: unitTime, otherSubject: subjectNode},
	{label: "pyodide with numpy, made on demand, to first byte, p50", metric: "pyodide.numpy.demand", stat: median, unit: unitTime, otherSubject: subjectNode},
	{label: "pyodide, new interpreters per second", metric: "pyodide.first.rate", stat: median, unit: unitCount, otherSubject: subjectNode},
	{label: "pyodide with numpy, new interpreters per second", metric: "pyodide.numpy.rate", stat: median, unit: unitCount, otherSubject: subjectNode},
	{label: "pyodide, memory of a live one", metric: "pyodide.first.memory", stat: median, unit: unitBytes, goal: bound{atMost: 10e6}, otherSubject: subjectNode},
	{label: "pyodide with numpy, memory of a live one", metric: "pyodide.numpy.memory", stat: median, unit: unitBytes, goal: bound{atMost: 10e6}, otherSubject: subjectNode},
	{label: "pyodide, computing, beside native", metric: "pyodide.compute", stat: lowest, unit: unitTime, ratio: fraction, otherSubject: subjectNative, otherMetric: "sandbox.compute"},
	{label: "pyodide, stat of a file", metric: "pyodide.stat", stat: median, unit: unitTime, goal: bound{atMost: 60e-6}, otherSubject: subjectNode},
}

// isolationRows is the table of isolated runs.
var isolationRows = []row{
	{label: "start to closed in a sandbox, beside plain, p50", metric: "isolation.session", stat: median, unit: unitTime, ratio: fraction, otherSubject: subjectSpool, otherMetric: "isolation.plain"},
	{label: "start to closed in a sandbox that waits, p50", metric: "isolation.session", stat: median, unit: unitTime, goal: bound{atMost: 0.001}, otherSubject: subjectBubblewrap},
	{label: "start to closed in a sandbox, more than plain", metric: "isolation.extra", stat: median, unit: unitTime, goal: bound{atMost: 100e-6}, otherSubject: subjectBubblewrap},
	{label: "start to closed in a new sandbox, p50", metric: "isolation.cold", stat: median, unit: unitTime, ratio: fraction, goal: bound{atMost: 1}, otherSubject: subjectBubblewrap},
	{label: "start to closed in a new sandbox, beside srt, p50", metric: "isolation.cold", stat: median, unit: unitTime, ratio: fraction, otherSubject: subjectSRT},
	{label: "start on an overlay of 10,000 files, p50", metric: "isolation.overlay", stat: median, unit: unitTime, goal: bound{atMost: 0.005}, otherSubject: subjectBubblewrap},
	{label: "list 100 changes", metric: "isolation.diff", stat: median, unit: unitTime, goal: bound{atMost: 0.001}, otherSubject: subjectBubblewrap},
	{label: "bytes through the proxy", metric: "isolation.proxy.rate", stat: median, unit: unitRate, goal: bound{atLeast: 500e6}, otherSubject: subjectBubblewrap},
	{label: "request through the proxy, p50", metric: "isolation.proxy.request", stat: median, unit: unitTime, goal: bound{atMost: 0.0005}, otherSubject: subjectBubblewrap},
	{label: "processes left by a kill, most", metric: "isolation.survivors", stat: most, unit: unitCount, goal: bound{atMost: zero}, otherSubject: subjectBubblewrap},
	{label: "escapes from an isolated run, most", metric: "isolation.escapes", stat: most, unit: unitCount, goal: bound{atMost: zero}, otherSubject: subjectBubblewrap},
}

// agentRows is the table of codex with a scripted model, one command and one
// answer, beside codex as a person runs it.
var agentRows = []row{
	{label: "codex, prompt to end, p50", metric: "agent.turn", stat: median, unit: unitTime, ratio: fraction, goal: bound{atMost: 1.05}, otherSubject: subjectByHand},
	{label: "codex, prompt to end, best", metric: "agent.turn", stat: lowest, unit: unitTime, ratio: fraction, otherSubject: subjectByHand},
	{label: "spool agent codex, the whole command, p50", metric: "agent.command", stat: median, unit: unitTime, ratio: fraction, otherSubject: subjectByHand, otherMetric: "agent.turn"},
	{label: "memory Spool adds to one conversation", metric: "agent.rss", stat: most, unit: unitBytes, goal: bound{atMost: 20e6}, otherSubject: subjectByHand},
	{label: "memory Spool adds to each further one", metric: "agent.rss.more", stat: most, unit: unitBytes, goal: bound{atMost: 20e6}, otherSubject: subjectByHand},
}
