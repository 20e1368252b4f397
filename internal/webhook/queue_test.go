package webhook

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
)

// TestQueue bounds what waits, what is remembered, and the texts.
func TestQueue(t *testing.T) {
	s := &Sender{opts: Options{Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}, wake: make(chan struct{}, 1)}
	k := known{asks: make(map[spool.RunID]map[spool.Seq]bool), ended: make(map[spool.RunID]time.Time)}
	long := time.Now().Add(-time.Hour)
	for i := range remembered {
		k.ended[spool.RunID(fmt.Sprint("old", i))] = long
	}
	for i := range queued + 10 {
		info := &spool.Info{ID: spool.RunID(fmt.Sprint("r", i)), State: spool.StateClosed, Name: strings.Repeat("é", longest), Outcome: &spool.Outcome{Kind: spool.Exited}}
		for range 2 { // told once
			s.note(t.Context(), k, info)
		}
	}
	if len(s.queue) != queued || s.queue[0].Run.ID != "r10" || s.queue[queued-1].Run.ID != spool.RunID(fmt.Sprint("r", queued+9)) {
		t.Errorf("%d messages, from %s", len(s.queue), s.queue[0].Run.ID)
	}
	if len(k.ended) != queued+10 {
		t.Errorf("%d runs are remembered", len(k.ended))
	}
	if n := len(s.queue[0].Text); n > longest+len("…") {
		t.Errorf("a text has %d bytes", n)
	}
}
