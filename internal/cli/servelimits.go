package cli

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/spool-run/spool/internal/wire/httpapi"
)

// serveLimit is a flag of spool serve that sets a limit.
type serveLimit struct {
	name  string
	value any // a pointer to a number of things, of bytes or to a time
	def   int64
	usage string
}

// limits are the flags of limits.
func (o *serveOptions) limits() []serveLimit {
	l := &o.http
	return []serveLimit{
		{"max-headers", &l.Headers, httpapi.DefaultHeaders, "`bytes` of the headers of a request"},
		{"max-body", &l.Body, httpapi.DefaultBody, "`bytes` of the JSON of a request"},
		{"max-stdin", &l.Stdin, httpapi.DefaultStdin, "`bytes` of standard input in a request"},
		{"max-streams", &l.Streams, httpapi.DefaultStreams, "`number` of streams at once"},
		{"max-streams-per-subject", &l.StreamsOf, httpapi.DefaultStreamsOf, "`number` of streams at once of one subject"},
		{"max-streams-per-run", &l.StreamsOfRun, httpapi.DefaultStreamsOfRun, "`number` of streams at once of one run"},
		{"max-streams-per-connection", &l.StreamsOfConn, httpapi.DefaultStreamsOfConn, "`number` of requests at once on one connection of HTTP/2; more wait"},
		{"max-watchers", &l.Watchers, httpapi.DefaultWatchers, "`number` of watches of runs at once"},
		{"heartbeat", &l.Heartbeat, int64(httpapi.DefaultHeartbeat), "silence on a stream after this `time` is broken by a comment"},
		{"stalled-for", &l.Stalled, int64(httpapi.DefaultStalled), "`time` after which a client that takes nothing is cut off"},
		{"max-failures", &l.Failures, httpapi.DefaultFailures, "`number` of requests without valid credentials per minute and address; more are told to wait"},
		{"max-failures-total", &l.FailuresTotal, httpapi.DefaultFailuresTotal, "`number` of such requests per minute of all addresses"},
		{"max-start-rate", &l.StartRate, httpapi.DefaultStartRate, "`number` of starts per second of one subject, five times as many at once"},
		{"max-input-rate", &l.InputRate, httpapi.DefaultInputRate, "`number` of inputs and answers per second of one subject"},
		{"max-request-rate", &l.RequestRate, httpapi.DefaultRequestRate, "`number` of other requests per second of one subject"},
		{"max-wait", &l.LongPoll, int64(httpapi.DefaultLongPoll), "longest `time` that a request waits"},
		{"max-page", &l.Page, httpapi.DefaultPage, "`bytes` of a page of events"},
		{"max-page-events", &l.PageEvents, httpapi.DefaultPageEvents, "`number` of events of a page"},
		{"max-stream-page", &l.StreamPage, httpapi.DefaultStreamPage, "`bytes` of events that a stream reads at once"},
		{"max-list", &l.List, httpapi.DefaultList, "`number` of runs of a list"},
		{"max-list-bytes", &l.ListBytes, httpapi.DefaultListBytes, "`bytes` of the command lines of a list"},
		{"max-lines", &l.Lines, httpapi.DefaultLines, "`number` of lines of an answer"},
		{"max-lines-bytes", &l.LinesBytes, httpapi.DefaultLinesBytes, "`bytes` of the text of those lines"},
		{"max-line", &l.Line, httpapi.DefaultLine, "`bytes` of a line; a longer one is cut"},
		{"max-hits", &l.Hits, httpapi.DefaultHits, "`number` of hits of a search"},
		{"max-pattern", &l.Pattern, httpapi.DefaultPattern, "`bytes` of what is searched for"},
		{"max-scrollback", &l.Scrollback, httpapi.DefaultScrollback, "`number` of lines above a screen"},
		{"max-lens", &l.Lens, httpapi.DefaultLens, "`bytes` of memory for the indexes and screens of logs"},
		{"max-checkpoints", &l.Checkpoints, httpapi.DefaultCheckpoints, "`number` of screens of a run that are kept, to draw others from"},
		{"max-blob", &l.Blob, httpapi.DefaultBlob, "`bytes` of a blob in an answer; more is asked for in parts"},
		{"max-form", &l.Form, httpapi.DefaultForm, "`bytes` of a display in an answer; more is asked for in parts"},
		{"max-message", &l.Message, httpapi.DefaultMessage, "`bytes` of a message of a client that is attached to a run"},
		{"max-window", &l.Window, httpapi.DefaultWindow, "`bytes` that such a client gets ahead of what it has acknowledged"},
	}
}

// addLimits defines the flags of limits.
func (o *serveOptions) addLimits(flags *pflag.FlagSet) {
	for _, l := range o.limits() {
		switch v := l.value.(type) {
		case *int:
			flags.IntVar(v, l.name, int(l.def), l.usage)
		case *int64:
			flags.Int64Var(v, l.name, l.def, l.usage)
		case *time.Duration:
			flags.DurationVar(v, l.name, time.Duration(l.def), l.usage)
		}
	}
}

// checkLimits refuses limits that let nothing through.
func (o *serveOptions) checkLimits() error {
	for _, l := range o.limits() {
		ok := true
		switch v := l.value.(type) {
		case *int:
			ok = *v > 0
		case *int64:
			ok = *v > 0
		case *time.Duration:
			ok = *v > 0
		}
		if !ok {
			return usageErrorf("--%s: a limit must be greater than zero", l.name)
		}
	}
	return nil
}
