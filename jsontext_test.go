package spool_test

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/spool-run/spool"
)

// TestEventTextForm checks that the texts and the time of an event have the form that
// encoding/json and package time give them.
func TestEventTextForm(t *testing.T) {
	check := func(t interface{ Error(...any) }, text string, at time.Time) {
		want := struct {
			Run  string `json:"run"`
			Seq  int    `json:"seq"`
			Time string `json:"time"`
			Kind string `json:"kind"`
			Text string `json:"text,omitempty"`
		}{text, 1, at.UTC().Format("2006-01-02T15:04:05.000000000Z"), "output", strings.ToValidUTF8(text, "")}
		e := spool.Event{Run: spool.RunID(text), Seq: 1, Time: at, Kind: spool.KindOutput, Bytes: []byte(want.Text)}
		var line bytes.Buffer
		enc := json.NewEncoder(&line)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(want); err != nil {
			t.Error(err)
		}
		if diff := cmp.Diff(strings.TrimSuffix(line.String(), "\n"), string(e.AppendJSON(nil))); diff != "" {
			t.Error(diff)
		}
	}
	var all strings.Builder
	for c := range 256 {
		all.WriteByte(byte(c))
	}
	all.WriteString("aé\u2027\u2028\u2029\u202a\ufffd😀\xe2\x80\xf0\x9f\x98 <&>")
	check(t, all.String(), time.Unix(0, 1))
	check(t, "\u2028", time.Date(12345, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600)))
	check(t, "\xe2\x80", time.Time{})
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.Map(rapid.SliceOf(rapid.Byte()), func(b []byte) string { return string(b) }))
		check(t, text.Draw(t, "text"), time.Unix(0, rapid.Int64Range(0, 1<<62).Draw(t, "time")))
	})
}
