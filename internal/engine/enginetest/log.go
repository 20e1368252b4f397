// Package enginetest is the conformance suite of engines, and the log that its
// tests look into. All engines run the same suite; what an engine cannot have,
// its test says, and the suite asserts the list.
package enginetest

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/eventlog"
)

// Patience is how long the helpers wait for something that should happen.
const Patience = 2 * time.Minute

// Log is a sink that keeps everything in memory and can be followed.
type Log struct {
	*eventlog.Log

	mu    sync.Mutex
	blobs map[spool.Digest][]byte
}

var _ engine.Sink = (*Log)(nil)

// NewLog returns an empty log.
func NewLog() *Log {
	return &Log{
		Log:   eventlog.New(eventlog.Options{Run: "test", Memory: 4 << 30}),
		blobs: make(map[spool.Digest][]byte),
	}
}

// PutBlob keeps a large value.
func (l *Log) PutBlob(mime string, r io.Reader) (spool.Blob, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return spool.Blob{}, err
	}
	sum := sha256.Sum256(b)
	d := spool.Digest("sha256:" + hex.EncodeToString(sum[:]))
	l.mu.Lock()
	defer l.mu.Unlock()
	l.blobs[d] = b
	return spool.Blob{Digest: d, Size: int64(len(b)), MIME: mime}, nil
}

// Blob returns a value that was put.
func (l *Log) Blob(d spool.Digest) ([]byte, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, ok := l.blobs[d]
	return b, ok
}

// All returns the events that exist now.
func (l *Log) All(t testing.TB) []spool.Event {
	t.Helper()
	events, err := l.Read(0, 1<<40)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

// Output returns the bytes of a stream that were logged so far.
func (l *Log) Output(t testing.TB, stream spool.Stream) []byte {
	t.Helper()
	var b []byte
	for _, e := range l.All(t) {
		if e.Kind == spool.KindOutput && e.Stream == stream {
			b = append(b, e.Bytes...)
		}
	}
	return b
}

// Until waits for the first event that matches.
func (l *Log) Until(t testing.TB, what string, match func(spool.Event) bool) spool.Event {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), Patience)
	defer cancel()
	for e, err := range l.Follow(ctx, 0) {
		if err != nil {
			t.Fatalf("wait for %s: %v; the log is:\n%s", what, err, l.Dump(t))
		}
		if match(e) {
			return e
		}
	}
	t.Fatalf("the log ended without %s:\n%s", what, l.Dump(t))
	return spool.Event{}
}

// UntilOutput waits until a stream contains text.
func (l *Log) UntilOutput(t testing.TB, stream spool.Stream, text string) {
	t.Helper()
	var have []byte
	l.Until(t, fmt.Sprintf("%q on %s", text, stream), func(e spool.Event) bool {
		if e.Kind != spool.KindOutput || e.Stream != stream {
			return false
		}
		have = append(have, e.Bytes...)
		return bytes.Contains(have, []byte(text))
	})
}

// Notices returns the codes of the notices logged so far.
func (l *Log) Notices(t testing.TB) []string {
	t.Helper()
	var codes []string
	for _, e := range l.All(t) {
		if e.Kind == spool.KindNotice {
			codes = append(codes, Data[spool.Notice](t, e).Code)
		}
	}
	return codes
}

// Dump shows the log, one line per event, cut to what a person reads.
func (l *Log) Dump(t testing.TB) string {
	t.Helper()
	var b bytes.Buffer
	for i, e := range l.All(t) {
		if i == 200 {
			b.WriteString("…\n")
			break
		}
		text := e.Bytes
		if len(text) > 200 {
			text = text[:200]
		}
		data := e.Data
		if len(data) > 2000 {
			data = data[:2000]
		}
		fmt.Fprintf(&b, "%d %s %s %q %s\n", e.Seq, e.Kind, e.Stream, text, data)
	}
	return b.String()
}

// Data decodes the payload of an event.
func Data[T any](t testing.TB, e spool.Event) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(e.Data, &v); err != nil {
		t.Fatalf("decode %s event %d: %v", e.Kind, e.Seq, err)
	}
	return v
}

// Wait waits for the session to end.
func Wait(t testing.TB, s engine.Session) spool.Outcome {
	t.Helper()
	done := make(chan spool.Outcome, 1)
	go func() { done <- s.Wait() }()
	select {
	case o := <-done:
		return o
	case <-time.After(Patience):
		t.Fatalf("process %d does not end", s.Pid())
		return spool.Outcome{}
	}
}
