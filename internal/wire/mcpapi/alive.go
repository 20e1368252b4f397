package mcpapi

import (
	"context"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// heartbeat is the default of [Options.Heartbeat].
	heartbeat = 15 * time.Second
	// firstBeat is the silence after which a call that waits sends the headers of its
	// answer, with a comment.
	firstBeat = time.Second
)

// aliveWriter writes an answer. If that is a stream of events, it writes a comment after
// each silence. The SDK writes each event with one call, so that a comment is never in
// the middle of one. It is a value of the context of its request.
type aliveWriter struct {
	http.ResponseWriter
	control *http.ResponseController
	every   time.Duration

	mu    sync.Mutex
	timer *time.Timer // nil until the answer is a stream
	over  bool
}

// aliveKey is the key of the writer in the context of its request.
type aliveKey struct{}

// keepAlive has the answer to a call that waits begin soon, if it comes over HTTP. The SDK
// has set its headers by now.
func keepAlive(ctx context.Context) {
	w, ok := ctx.Value(aliveKey{}).(*aliveWriter)
	if !ok {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.timer == nil {
		w.spoke(min(w.every, firstBeat))
	}
}

// Unwrap is for [http.ResponseController].
func (w *aliveWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements [http.ResponseWriter].
func (w *aliveWriter) WriteHeader(status int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ResponseWriter.WriteHeader(status)
	w.spoke(w.every)
}

// Write implements [http.ResponseWriter].
func (w *aliveWriter) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	n, err := w.ResponseWriter.Write(p)
	w.spoke(w.every)
	return n, err
}

// FlushError is for [http.ResponseController].
func (w *aliveWriter) FlushError() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.control.Flush()
}

// spoke begins to wait for a silence, or begins again.
func (w *aliveWriter) spoke(silence time.Duration) {
	switch {
	case w.over:
	case w.timer != nil:
		w.timer.Reset(silence)
	case strings.HasPrefix(w.Header().Get("Content-Type"), "text/event-stream"):
		w.timer = time.AfterFunc(silence, w.beat)
	}
}

// beat writes a comment. A client that is gone is noticed by the SDK.
func (w *aliveWriter) beat() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.over {
		return
	}
	if _, err := w.ResponseWriter.Write([]byte(":\n\n")); err == nil && w.control.Flush() == nil {
		w.timer.Reset(w.every)
	}
}

// end ends the comments. The answer must not be written to after its handler returned.
func (w *aliveWriter) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if w.timer != nil {
		w.timer.Stop()
	}
}
