package host

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spool-run/spool"
)

func TestNoteTurn(t *testing.T) {
	input := func(data string) spool.Event { return spool.Event{Kind: spool.KindInput, Data: []byte(data)} }
	var info spool.Info
	for _, tt := range []struct {
		event   spool.Event
		title   string
		outcome spool.TurnOutcome
	}{
		{input(`{"kind":"cell","data":{"code":"\n  x = 1  \nprint(x)"}}`), "x = 1", ""},
		{spool.Event{Kind: spool.KindDone, Data: []byte(`{"outcome":"error"}`)}, "x = 1", "error"},
		{input(`{"kind":"cell","data":{"code":"hidden()","silent":true}}`), "x = 1", "error"},
		{input(`{"kind":"answer","data":{"ask":3,"data":"text"}}`), "x = 1", "error"},
		{input(`{"kind":"cell"}`), "x = 1", "error"}, // a secret one
		{input(`{"kind":"prompt","data":{"text":"Do it.\nNow."}}`), "Do it.", "error"},
		{spool.Event{Kind: spool.KindDone, Data: []byte(`{"outcome":"ok"}`)}, "Do it.", "ok"},
		{input(`not JSON`), "Do it.", "ok"},
		{input(`{"kind":"cell","data":{"code":"","module":"json.tool"}}`), "-m json.tool", "ok"},
		{input(`{"kind":"cell","data":{"code":"","file":"/srv/app.zip","module":"__main__"}}`), "/srv/app.zip", "ok"},
	} {
		noteTurn(&info, &tt.event)
		if info.Title != tt.title || info.TurnOutcome != tt.outcome {
			t.Errorf("after %s: %q, %q", tt.event.Data, info.Title, info.TurnOutcome)
		}
	}
	long := firstLine(strings.Repeat("é", maxTitle))
	if len(long) > maxTitle || len(long) < maxTitle-utf8.UTFMax || !utf8.ValidString(long) {
		t.Errorf("a long line is cut to %d bytes: %q", len(long), long)
	}
}
