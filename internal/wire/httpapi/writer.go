package httpapi

import (
	"net/http"
	"time"
)

// patientWriter gives every part of an answer its own time: a slow client gets a long
// answer, and one that takes nothing is cut off.
type patientWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	stalled time.Duration
}

func newPatientWriter(w http.ResponseWriter, stalled time.Duration) *patientWriter {
	return &patientWriter{w, http.NewResponseController(w), stalled}
}

// Unwrap is for [http.ResponseController].
func (w *patientWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// Write implements [io.Writer].
func (w *patientWriter) Write(p []byte) (n int, err error) {
	for {
		part := p[n:min(len(p), n+streamBytes)]
		_ = w.control.SetWriteDeadline(time.Now().Add(w.stalled)) // not every writer has deadlines
		m, err := w.ResponseWriter.Write(part)
		n += m
		if err != nil || n == len(p) {
			return n, err
		}
	}
}

// end lifts the deadline for what else is on the connection.
func (w *patientWriter) end() { _ = w.control.SetWriteDeadline(time.Time{}) }
