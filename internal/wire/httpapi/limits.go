package httpapi

import (
	"cmp"
	"time"

	"github.com/spool-run/spool/internal/lens"
)

// Limits bound what clients use. Zero means the default.
type Limits struct {
	Body          int64         // bytes of the JSON of a request
	Stdin         int64         // bytes of standard input in a request
	Streams       int           // streams at once, of all subjects
	StreamsOf     int           // streams at once of one subject
	StreamsOfRun  int           // streams at once of one run
	StreamsOfConn int           // requests at once on one connection of HTTP/2
	Watchers      int           // watches of runs at once
	Heartbeat     time.Duration // silence on a stream after which it sends something
	Stalled       time.Duration // time of a write to a client that takes nothing
	SlowGrace     time.Duration // what such a client has more, so that it learns why it is cut off
	LongPoll      time.Duration // longest wait of a request
	Lens          int64         // bytes of memory for the indexes and screens of logs
	Checkpoints   int           // screens of one run that are kept, to draw others from
	CursorEvery   time.Duration // between the cursors of a filtered stream
	RetryMs       int           // what clients wait before they come back, give or take a quarter
	CheckEvery    time.Duration // between the checks of the tokens of streams
	VisitFor      time.Duration // silence after which a visit is over, for the audit log
	Headers       int           // bytes of the headers of a request

	// Answers, beyond which clients ask again.
	Page       int   // bytes of a page of events
	PageEvents int   // events of a page
	StreamPage int   // bytes of events that a stream reads at once, and of one write to a client
	List       int   // runs of a list
	ListBytes  int   // bytes of the command lines of a list
	Lines      int   // lines of an answer
	LinesBytes int   // bytes of the text of those lines
	Line       int   // bytes of a line
	Hits       int   // hits of a search
	Pattern    int   // bytes of what is searched for
	Scrollback int   // lines above a screen
	Blob       int64 // bytes of a blob in an answer; the rest is asked for with Range
	Form       int64 // bytes of a form of a display in an answer
	Message    int64 // bytes of a message of a client that is attached to a run
	Window     int64 // bytes that such a client gets ahead of what it has acknowledged

	// Rates: how often.
	Failures      int // requests of one address in a minute without valid credentials
	FailuresTotal int // such requests of all addresses
	StartRate     int // starts per second of one subject; five times as many at once
	InputRate     int // inputs and answers per second of one subject
	RequestRate   int // other requests per second of one subject
}

// Defaults of [Limits].
const (
	DefaultBody          = 8 << 20
	DefaultStdin         = 16 << 20
	DefaultStreams       = 16_384
	DefaultStreamsOf     = 256
	DefaultStreamsOfRun  = 4096
	DefaultStreamsOfConn = 256
	DefaultWatchers      = 256
	DefaultHeartbeat     = 15 * time.Second
	DefaultStalled       = 30 * time.Second
	DefaultLongPoll      = 55 * time.Second
	DefaultLens          = lens.DefaultMemory
	DefaultCheckpoints   = lens.DefaultCheckpoints
	DefaultHeaders       = 64 << 10

	DefaultPage       = 8 << 20
	DefaultPageEvents = 16_000
	DefaultStreamPage = 256 << 10
	DefaultList       = 1000
	DefaultListBytes  = 8 << 20
	DefaultLines      = lens.DefaultRows
	DefaultLinesBytes = lens.DefaultBytes
	DefaultLine       = lens.DefaultLine
	DefaultHits       = 1000
	DefaultPattern    = 1 << 10
	DefaultScrollback = 2000
	DefaultBlob       = 256 << 20
	DefaultForm       = 32 << 20
	// DefaultMessage is for clients that are attached, who send what is typed. Messages of
	// /v1/rpc may be larger, see rpc.MaxMessage: specs and prompts with images are among
	// them.
	DefaultMessage = 1 << 20
	DefaultWindow  = 1 << 20

	DefaultFailures      = 10
	DefaultFailuresTotal = 100
	DefaultStartRate     = 20
	DefaultInputRate     = 500
	DefaultRequestRate   = 200

	slowGrace   = 10 * time.Second
	cursorEvery = 5 * time.Second
	checkEvery  = time.Second
	visitFor    = 5 * time.Minute
	retryMs     = 1000
	bodyFor     = 2 * time.Minute // until the body of a request has arrived
)

// Bounds of answers, which clients go beyond with further requests.
const (
	listPage     = 100      // runs of a list whose query names no limit
	partBytes    = 64 << 10 // of a page of a stream in one write
	maxSkimBytes = 64 << 20 // of events that a filter passes over for one page
	firstHits    = 16       // hits of a stream that are sent first; then four times as many, and so on
	maxTurns     = 1000
	gzipFrom     = 1 << 10 // bytes of an answer that is worth compressing
	skipBytes    = 4 << 20 // of output behind which a viewer gets a new screen instead
)

func (l Limits) withDefaults() Limits {
	l.Body = cmp.Or(l.Body, DefaultBody)
	l.Stdin = cmp.Or(l.Stdin, DefaultStdin)
	l.Streams = cmp.Or(l.Streams, DefaultStreams)
	l.StreamsOf = cmp.Or(l.StreamsOf, DefaultStreamsOf)
	l.StreamsOfRun = cmp.Or(l.StreamsOfRun, DefaultStreamsOfRun)
	l.StreamsOfConn = cmp.Or(l.StreamsOfConn, DefaultStreamsOfConn)
	l.Watchers = cmp.Or(l.Watchers, DefaultWatchers)
	l.Heartbeat = cmp.Or(l.Heartbeat, DefaultHeartbeat)
	l.Stalled = cmp.Or(l.Stalled, DefaultStalled)
	l.SlowGrace = cmp.Or(l.SlowGrace, slowGrace)
	l.LongPoll = cmp.Or(l.LongPoll, DefaultLongPoll)
	l.Lens = cmp.Or(l.Lens, DefaultLens)
	l.Checkpoints = cmp.Or(l.Checkpoints, DefaultCheckpoints)
	l.Headers = cmp.Or(l.Headers, DefaultHeaders)
	l.CursorEvery = cmp.Or(l.CursorEvery, cursorEvery)
	l.RetryMs = cmp.Or(l.RetryMs, retryMs)
	l.CheckEvery = cmp.Or(l.CheckEvery, checkEvery)
	l.Failures = cmp.Or(l.Failures, DefaultFailures)
	l.FailuresTotal = cmp.Or(l.FailuresTotal, DefaultFailuresTotal)
	l.StartRate = cmp.Or(l.StartRate, DefaultStartRate)
	l.InputRate = cmp.Or(l.InputRate, DefaultInputRate)
	l.RequestRate = cmp.Or(l.RequestRate, DefaultRequestRate)
	l.VisitFor = cmp.Or(l.VisitFor, visitFor)
	l.Page = cmp.Or(l.Page, DefaultPage)
	l.PageEvents = cmp.Or(l.PageEvents, DefaultPageEvents)
	l.StreamPage = cmp.Or(l.StreamPage, DefaultStreamPage)
	l.List = cmp.Or(l.List, DefaultList)
	l.ListBytes = cmp.Or(l.ListBytes, DefaultListBytes)
	l.Lines = cmp.Or(l.Lines, DefaultLines)
	l.LinesBytes = cmp.Or(l.LinesBytes, DefaultLinesBytes)
	l.Line = cmp.Or(l.Line, DefaultLine)
	l.Hits = cmp.Or(l.Hits, DefaultHits)
	l.Pattern = cmp.Or(l.Pattern, DefaultPattern)
	l.Scrollback = cmp.Or(l.Scrollback, DefaultScrollback)
	l.Blob = cmp.Or(l.Blob, DefaultBlob)
	l.Form = cmp.Or(l.Form, DefaultForm)
	l.Message = cmp.Or(l.Message, DefaultMessage)
	l.Window = cmp.Or(l.Window, DefaultWindow)
	return l
}
