package spool_test

import (
	"testing"

	"github.com/spool-run/spool"
)

// A time limit gives 124, whatever the process made of the signal.
func TestOutcomeExitCode(t *testing.T) {
	for _, tt := range []struct {
		outcome spool.Outcome
		want    int
	}{
		{spool.Outcome{Kind: spool.Exited}, 0},
		{spool.Outcome{Kind: spool.Exited, Code: 143, Signal: "SIGTERM"}, 143},
		{spool.Outcome{Kind: spool.Exited, Code: 143, Signal: "SIGTERM", Reason: "timed out after 1s"}, 124},
		{spool.Outcome{Kind: spool.Exited, Code: 0, Reason: "timed out after 1s"}, 124},
		{spool.Outcome{Kind: spool.Exited, Code: 3, Reason: "timed out after 1s without output"}, 124},
		{spool.Outcome{Kind: spool.Exited, Code: 0, Reason: "timed out after 1m without a cell"}, 0},
		{spool.Outcome{Kind: spool.Failed, Reason: "no disk"}, 125},
		{spool.Outcome{Kind: spool.Unknown, Reason: "its host died"}, 125},
	} {
		if got := tt.outcome.ExitCode(); got != tt.want {
			t.Errorf("%v gives %d, want %d", tt.outcome, got, tt.want)
		}
	}
}

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
