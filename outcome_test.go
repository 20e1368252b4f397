package spool_test

import (
	"testing"

	"github.com/spool-run/spool"
)

func TestOutcomeEvents(t *testing.T) {
	tests := []struct {
		outcome spool.Outcome
		kind    spool.Kind
		data    string
	}{
		{spool.Outcome{Kind: spool.Exited}, spool.KindExited, `{"code":0}`},
		{spool.Outcome{Kind: spool.Exited, Code: 7}, spool.KindExited, `{"code":7}`},
		{spool.Outcome{Kind: spool.Exited, Code: 137, Signal: "SIGKILL"}, spool.KindExited, `{"code":137,"signal":"SIGKILL"}`},
		{spool.Outcome{Kind: spool.Exited, Code: 143, Signal: "SIGTERM", Reason: "timed out after 1s"}, spool.KindExited, `{"code":143,"signal":"SIGTERM","reason":"timed out after 1s"}`},
		{spool.Outcome{Kind: spool.Failed, Reason: `no "disk"`}, spool.KindFailed, `{"reason":"no \"disk\""}`},
		{spool.Outcome{Kind: spool.Unknown, Reason: "its host died"}, spool.KindFailed, `{"reason":"its host died","unknown":true}`},
	}
	for _, tt := range tests {
		e := tt.outcome.Event()
		if e.Kind != tt.kind || string(e.Data) != tt.data {
			t.Errorf("%v is %s %s, want %s %s", tt.outcome, e.Kind, e.Data, tt.kind, tt.data)
		}
		if got, ok := e.Outcome(); !ok || got != tt.outcome {
			t.Errorf("%s %s says %v, want %v", e.Kind, e.Data, got, tt.outcome)
		}
	}
}
