package host

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/eventlog"
)

// TestAsksEndOnce checks that an ask ends in one way: by the policy before it
// was put, by an answer, by a notice, or by the end of its turn.
func TestAsksEndOnce(t *testing.T) {
	log := eventlog.New(eventlog.Options{Run: "test"})
	var a asks
	add := func(e spool.Event) spool.Seq {
		t.Helper()
		seq, err := a.record(e, log)
		if err != nil {
			t.Fatal(err)
		}
		return seq
	}
	ask := spool.Event{Kind: spool.KindAsk, Turn: 7, Data: []byte(`{"kind":"approval"}`)}
	closing := func(seq spool.Seq) spool.Event {
		t.Helper()
		data, err := json.Marshal(spool.Notice{Code: spool.NoticeAskClosed, Ask: seq})
		if err != nil {
			t.Fatal(err)
		}
		return spool.Event{Kind: spool.KindNotice, Data: data}
	}

	decided := add(spool.Event{Kind: spool.KindAsk, Turn: 7, Data: []byte(`{"kind":"approval","answer":{"data":"allow","by":"policy"}}`)})
	if a.close(decided) {
		t.Error("an answer to an ask that the policy decided was accepted")
	}

	answered := add(ask)
	if !a.close(answered) || a.close(answered) {
		t.Error("an ask is answered once")
	}
	last, _ := log.Last()
	if _, err := a.record(closing(answered), log); !errors.Is(err, spool.ErrNotAsked) {
		t.Errorf("close an ask that was answered: %v", err)
	}
	if now, _ := log.Last(); now != last {
		t.Error("the log says that an ask was answered and that it was closed")
	}

	closed := add(ask)
	add(closing(closed))
	if a.close(closed) {
		t.Error("an answer to a closed ask was accepted")
	}

	over := add(ask)
	add(spool.Event{Kind: spool.KindDone, Turn: 7})
	if a.close(over) {
		t.Error("an answer was accepted after the end of the turn")
	}
}
