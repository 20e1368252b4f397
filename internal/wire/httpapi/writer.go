package httpapi

import (
	"io"
	"net/http"
	"time"
)

// patient is where a stream writes to: a client that has its time for every part.
type patient interface {
	io.Writer
	FlushError() error // as [http.ResponseController] has it
	wasSlow() bool     // a part took so long that the client should come back later
}

// patientWriter gives every part of an answer its own time: a slow client gets a long
// answer, and one that takes nothing is cut off.
type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	stalled time.Duration // after which a client is slow
	grace   time.Duration // after which it is cut off
	part    int           // bytes of one write
	slow    bool          // a part took longer than stalled
	lift    bool          // a deadline that passes ends the answer, also if nothing is written
	gone    bool          // the connection belongs to somebody else
}

func newPatientWriter(w http.ResponseWriter, r *http.Request, l *Limits) *patientWriter {
	return &patientWriter{ResponseWriter: w, control: http.NewResponseController(w), stalled: l.Stalled, grace: l.SlowGrace, part: l.StreamPage, lift: r.ProtoMajor > 1}
}

// unbuffered sets the headers of an answer that comes bit by bit: nobody on the way may
// keep it, change it or hold it back.
func (c *call) unbuffered(form string) http.Header {
	h := c.w.Header()
	if form == formSSE {
		form += "; charset=utf-8"
	}
	h.Set("Content-Type", form)
	h.Set("Cache-Control", "no-store, no-transform")
	h.Set("X-Accel-Buffering", "no")
	return h
}

// Unwrap is for [http.ResponseController].
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements [io.Writer].
func (w *patientWriter) Write(p []byte) (n int, err error) {
	for {
		part := p[n:min(len(p), n+w.part)]
		began := time.Now()
		_ = w.control.SetWriteDeadline(began.Add(w.stalled + w.grace)) // not every writer has deadlines
		m, err := w.ResponseWriter.Write(part)
		n += m
		w.slow = w.slow || time.Since(began) >= w.stalled
		if err != nil || n == len(p) {
			if w.lift {
				w.end()
			}
			return n, err
		}
	}
}

// FlushError is for [http.ResponseController].
func (w *patientWriter) FlushError() error {
	if !w.lift { // the deadline of what was written holds
		return w.control.Flush()
	}
	_ = w.control.SetWriteDeadline(time.Now().Add(w.stalled + w.grace))
	defer w.end()
	return w.control.Flush()
}

func (w *patientWriter) wasSlow() bool { return w.slow }

// end lifts the deadline for what else is on the connection.
func (w *patientWriter) end() {
	if !w.gone {
		_ = w.control.SetWriteDeadline(time.Time{})
	}
}
