package spool_test

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/spool-run/spool"
)

// TestRetype checks which answers to a dangerous ask count: those that refuse it, and
// those that come with the command.
func TestRetype(t *testing.T) {
	ask := spool.Ask{Kind: "approval", Name: "command", Retype: true, Data: json.RawMessage(`{"command":" rm -rf \n build "}`),
		Options: []spool.AskOption{{ID: "ok", Kind: "allow_once"}, {ID: "no", Kind: "reject_once"}, {ID: "deny_stop", Kind: "allow_always"}}}
	for _, tt := range []struct {
		answer spool.Answer
		counts bool
	}{
		{spool.Answer{Data: json.RawMessage(`"ok"`), Retype: "rm -rf build"}, true},
		{spool.Answer{Data: json.RawMessage(`{"choice":"allow"}`), Retype: " rm  -rf\tbuild"}, true},
		{spool.Answer{Data: json.RawMessage(`true`), Retype: "rm -rf build"}, true},
		{spool.Answer{Data: json.RawMessage(`"ok"`)}, false},
		{spool.Answer{Data: json.RawMessage(`"ok"`), Retype: "rm -rf buil"}, false},
		{spool.Answer{Data: json.RawMessage(`"ok"`), Retype: "rm -rfbuild"}, false},
		{spool.Answer{Data: json.RawMessage(`true`)}, false},
		{spool.Answer{Data: json.RawMessage(`null`)}, false},
		{spool.Answer{}, false},
		{spool.Answer{Data: json.RawMessage(`{"answers":{}}`)}, false},
		{spool.Answer{Data: json.RawMessage(`"deny_stop"`)}, false}, // an option of the agent that allows
		{spool.Answer{Data: json.RawMessage(`"deny"`)}, true},
		{spool.Answer{Data: json.RawMessage(`{"choice":"deny","message":"no"}`)}, true},
		{spool.Answer{Data: json.RawMessage(`"no"`)}, true},
		{spool.Answer{Data: json.RawMessage(`false`)}, true},
		{spool.Answer{Error: &spool.AnswerError{Message: "no"}}, true},
	} {
		if err := ask.CheckRetype(&tt.answer); (err == nil) != tt.counts || err != nil && !errors.Is(err, spool.ErrNotRetyped) {
			t.Errorf("%s %q: %v", tt.answer.Data, tt.answer.Retype, err)
		}
	}
	for want, ask := range map[string]spool.Ask{
		"":                {Name: "command", Data: ask.Data},
		"file_change":     {Name: "file_change", Retype: true, Data: json.RawMessage(`[1]`)},
		"rm -rf \n build": ask,
	} {
		if got := ask.RetypeText(); got != want {
			t.Errorf("%+v: %q, want %q", ask, got, want)
		}
	}
	if err := (&spool.Ask{Name: "command"}).CheckRetype(&spool.Answer{Data: json.RawMessage(`true`)}); err != nil {
		t.Errorf("an ask that is not dangerous: %v", err)
	}
}
