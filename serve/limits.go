package serve

import "time"

// Limits bound what clients use; docs/limits.md has the defaults, which zero means, and
// what is answered beyond them.
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
