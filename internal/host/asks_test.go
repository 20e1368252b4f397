package host

import (
	"bytes"
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

// TestSecretAskDecides checks that the answer to an ask for a secret stays out
// of the log, also when the answer does not say that it is secret.
func TestSecretAskDecides(t *testing.T) {
	for _, c := range []struct {
		ask    string
		secret bool // says the answer
		logged bool
	}{
		{`{"kind":"input","secret":true}`, false, false},
		{`{"kind":"input","secret":true}`, true, false},
		{`{"kind":"input"}`, true, false},
		{`{"kind":"input"}`, false, true},
	} {
		log := eventlog.New(eventlog.Options{Run: "test"})
		q := newInputQueue(t.Context(), log.Append)
		take := make(chan struct{})
		close(take)
		q.begin(&slowSession{take: take})
		seq, err := q.asks.record(spool.Event{Kind: spool.KindAsk, Data: []byte(c.ask)}, log)
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(spool.Answer{Ask: seq, Data: []byte(`"hunter2"`)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := q.put(t.Context(), spool.Input{Kind: spool.InputAnswer, Data: data, Secret: c.secret}); err != nil {
			t.Fatal(err)
		}
		q.end()
		events, err := log.Read(seq, spool.DefaultPageBytes)
		if err != nil || len(events) != 1 {
			t.Fatalf("%d events, %v", len(events), err)
		}
		if logged := bytes.Contains(events[0].Data, []byte("hunter2")); logged != c.logged {
			t.Errorf("ask %s, answer secret %v: logged %v, want %v", c.ask, c.secret, logged, c.logged)
		}
	}
}

// TestDangerousAskStaysOpen checks that an answer which lacks what must be typed again
// does not close an ask.
func TestDangerousAskStaysOpen(t *testing.T) {
	var a asks
	ask, err := a.record(spool.Event{Kind: spool.KindAsk, Data: []byte(`{"kind":"approval","retype":true,"data":{"command":"rm -r build"}}`)},
		eventlog.New(eventlog.Options{Run: "test"}))
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		retype string
		err    error
	}{{"", spool.ErrNotRetyped}, {"rm -r", spool.ErrNotRetyped}, {"rm -r build", nil}, {"", spool.ErrNotAsked}} {
		if err := a.answer(&spool.Answer{Ask: ask, Data: []byte(`"allow"`), Retype: tt.retype}); !errors.Is(err, tt.err) {
			t.Errorf("%q: %v, want %v", tt.retype, err, tt.err)
		}
	}
}
