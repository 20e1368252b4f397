package spool_test

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spool-run/spool"
)

func TestEventJSONForm(t *testing.T) {
	at := time.Date(2026, 11, 15, 1, 2, 3, 456789000, time.UTC)
	tests := []struct {
		name  string
		event spool.Event
		want  string
	}{
		{"text", spool.Event{Run: "r", Seq: 3, Time: at, Kind: spool.KindOutput, Turn: 2, Stream: spool.Stdout, Bytes: []byte("hi\n")},
			`{"run":"r","seq":3,"time":"2026-11-15T01:02:03.456789000Z","kind":"output","turn":2,"stream":"stdout","text":"hi\n"}`},
		{"bytes that are not UTF-8", spool.Event{Run: "r", Seq: 4, Time: at, Kind: spool.KindOutput, Stream: spool.PTY, Bytes: []byte{0xff, 0xd8}},
			`{"run":"r","seq":4,"time":"2026-11-15T01:02:03.456789000Z","kind":"output","stream":"pty","base64":"/9g="}`},
		{"data", spool.Event{Run: "r", Seq: 10, Time: at, Kind: spool.KindExited, Data: json.RawMessage(`{"code":137,"signal":"SIGKILL"}`)},
			`{"run":"r","seq":10,"time":"2026-11-15T01:02:03.456789000Z","kind":"exited","data":{"code":137,"signal":"SIGKILL"}}`},
		{"nothing", spool.Event{Run: "r", Seq: 11, Time: at, Kind: spool.KindClosed},
			`{"run":"r","seq":11,"time":"2026-11-15T01:02:03.456789000Z","kind":"closed"}`},
		{"control characters and angle brackets", spool.Event{Run: "r", Seq: 1, Time: at, Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: []byte("\x1b[1m<b>\x00")},
			`{"run":"r","seq":1,"time":"2026-11-15T01:02:03.456789000Z","kind":"output","stream":"stdout","text":"\u001b[1m<b>\u0000"}`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := string(tt.event.AppendJSON(nil)); got != tt.want {
				t.Errorf("got  %s\nwant %s", got, tt.want)
			}
		})
	}
}

func TestEventJSONRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		e := spool.Event{
			Run:    spool.RunID(rapid.StringMatching(`[a-z0-9]{1,16}`).Draw(t, "run")),
			Seq:    spool.Seq(rapid.Uint64().Draw(t, "seq")),
			Time:   time.Unix(0, rapid.Int64Range(0, 1<<60).Draw(t, "time")).UTC(),
			Kind:   rapid.SampledFrom([]spool.Kind{spool.KindOutput, spool.KindNotice, "of-a-later-version"}).Draw(t, "kind"),
			Turn:   spool.Seq(rapid.Uint64Range(0, 5).Draw(t, "turn")),
			Stream: rapid.SampledFrom([]spool.Stream{"", spool.Stdout, spool.PTY}).Draw(t, "stream"),
		}
		if b := rapid.SliceOf(rapid.Byte()).Draw(t, "bytes"); len(b) > 0 {
			e.Bytes = b
		}
		if rapid.Bool().Draw(t, "hasData") {
			e.Data = json.RawMessage(`{"a":[1,"x"]}`)
		}
		line := e.AppendJSON(nil)
		if bytes.ContainsRune(line, '\n') {
			t.Fatalf("more than one line: %q", line)
		}
		var got spool.Event
		if err := json.Unmarshal(line, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(e, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

func TestOutcome(t *testing.T) {
	tests := []struct {
		event spool.Event
		want  spool.Outcome
		code  int
		text  string
	}{
		{spool.Event{Kind: spool.KindExited, Data: json.RawMessage(`{"code":7}`)}, spool.Outcome{Kind: spool.Exited, Code: 7}, 7, "exited 7"},
		{spool.Event{Kind: spool.KindExited, Data: json.RawMessage(`{"code":137,"signal":"SIGKILL"}`)}, spool.Outcome{Kind: spool.Exited, Code: 137, Signal: "SIGKILL"}, 137, "exited 137 (SIGKILL)"},
		{spool.Event{Kind: spool.KindFailed, Data: json.RawMessage(`{"reason":"disk full"}`)}, spool.Outcome{Kind: spool.Failed, Reason: "disk full"}, 125, "failed: disk full"},
		{spool.Event{Kind: spool.KindFailed, Data: json.RawMessage(`{"reason":"gone","unknown":true}`)}, spool.Outcome{Kind: spool.Unknown, Reason: "gone"}, 125, "unknown: gone"},
	}
	for _, tt := range tests {
		got, ok := tt.event.Outcome()
		if !ok || got != tt.want || got.ExitCode() != tt.code || got.String() != tt.text {
			t.Errorf("%s: %+v %v, exit code %d, %q", tt.event.Data, got, ok, got.ExitCode(), got)
		}
	}
	// What does not decode is unknown, never a guess.
	bad := spool.Event{Kind: spool.KindExited, Data: json.RawMessage(`"zero"`)}
	if got, ok := bad.Outcome(); !ok || got.Kind != spool.Unknown {
		t.Errorf("bad status gives %+v", got)
	}
	if _, ok := (&spool.Event{Kind: spool.KindClosed}).Outcome(); ok {
		t.Error("closed has an outcome")
	}
}

// TestInfoAppendJSON checks that the form made by hand is the one that
// encoding/json makes.
func TestInfoAppendJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.String()
		i := spool.Info{
			ID: spool.RunID(text.Draw(t, "id")), Name: text.Draw(t, "name"), Engine: text.Draw(t, "engine"),
			Labels: rapid.MapOfN(text, text, 0, 3).Draw(t, "labels"), Argv: rapid.SliceOfN(text, 0, 3).Draw(t, "argv"),
			Cwd: text.Draw(t, "cwd"), TTY: rapid.Bool().Draw(t, "tty"), Pid: rapid.Int().Draw(t, "pid"), Owner: text.Draw(t, "owner"),
			Created: time.Unix(0, rapid.Int64Range(0, 1<<60).Draw(t, "created")).UTC(), State: spool.State(text.Draw(t, "state")),
			Last: spool.Seq(rapid.Uint64().Draw(t, "last")), Bytes: rapid.Int64().Draw(t, "bytes"),
		}
		if rapid.Bool().Draw(t, "ended") {
			i.Ended = time.Unix(0, rapid.Int64Range(0, 1<<60).Draw(t, "at")).UTC()
			i.Outcome = &spool.Outcome{Kind: spool.Exited, Code: rapid.Int().Draw(t, "code"), Signal: text.Draw(t, "signal"), Reason: text.Draw(t, "reason")}
		}
		var want bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		type plain spool.Info // without the form made by hand
		if err := enc.Encode(plain(i)); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(strings.TrimSuffix(want.String(), "\n"), string(i.AppendJSON(nil))); diff != "" {
			t.Error(diff)
		}
	})
}

func TestExitedOutcome(t *testing.T) {
	for data, want := range map[string]spool.Outcome{
		`{"code":0}`:                       {Kind: spool.Exited},
		`{"code":137}`:                     {Kind: spool.Exited, Code: 137},
		`{"code":137,"signal":"SIGKILL"}`:  {Kind: spool.Exited, Code: 137, Signal: "SIGKILL"},
		`{"code": 3}`:                      {Kind: spool.Exited, Code: 3},
		`{"code":-1}`:                      {Kind: spool.Exited, Code: -1},
		`{"code":100000}`:                  {Kind: spool.Exited, Code: 100000},
		`{"code":7,"later":{"x":[1,2,3]}}`: {Kind: spool.Exited, Code: 7},
	} {
		e := spool.Event{Kind: spool.KindExited, Data: json.RawMessage(data)}
		if got, ok := e.Outcome(); !ok || got != want {
			t.Errorf("%s: %+v, want %+v", data, got, want)
		}
	}
	for _, data := range []string{``, `{"code":}`, `{"code":1`, `{"code":1}}`, `{"code":"1"}`} {
		e := spool.Event{Kind: spool.KindExited, Data: json.RawMessage(data)}
		if got, ok := e.Outcome(); !ok || got.Kind != spool.Unknown {
			t.Errorf("%q: %+v, want an unknown one", data, got)
		}
	}
}

// TestDurationsAreMilliseconds checks the JSON form of durations.
func TestDurationsAreMilliseconds(t *testing.T) {
	for _, tt := range []struct {
		value any
		want  string
	}{
		{spool.Limits{}, `{}`},
		{spool.Limits{Wall: time.Minute, Idle: time.Millisecond, Grace: 1500 * time.Microsecond, OutputBytes: 5, OutputPolicy: "stop", Pids: 7},
			`{"output_bytes":5,"output_policy":"stop","pids":7,"wall_ms":60000,"idle_ms":1,"grace_ms":2}`},
		{spool.Limits{Wall: 1, Idle: -1}, `{"wall_ms":1,"idle_ms":-1}`}, // zero would be the default
		{spool.Limits{Wall: math.MaxInt64}, `{"wall_ms":9223372036854}`},
		{spool.Spec{Argv: []string{"x"}}, `{"argv":["x"]}`},
		{spool.Spec{Limits: spool.Limits{Wall: time.Second}}, `{"limits":{"wall_ms":1000}}`},
		{spool.Control{Op: spool.ControlStop, Grace: time.Second, Turn: 3}, `{"op":"stop","turn":3,"grace_ms":1000}`},
		{&spool.Control{Op: spool.ControlKill}, `{"op":"kill"}`},
	} {
		got, err := json.Marshal(tt.value)
		if err != nil || string(got) != tt.want {
			t.Errorf("%+v: %s, %v; want %s", tt.value, got, err, tt.want)
		}
	}
	var l spool.Limits
	if err := json.Unmarshal([]byte(`{"wall_ms":60000,"grace_ms":0,"pids":2}`), &l); err != nil || l != (spool.Limits{Wall: time.Minute, Pids: 2}) {
		t.Errorf("%+v, %v", l, err)
	}
	for _, bad := range []string{`{"wall_ms":9223372036855}`, `{"idle_ms":"1s"}`, `{"grace_ms":1.5}`, `{"wall_ms":-9223372036855}`} {
		if err := json.Unmarshal([]byte(bad), &l); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
}
