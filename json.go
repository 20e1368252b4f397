package spool

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"
)

// AppendJSON appends the event's JSON form, one object without a line end.
// It is the form of --json, HTTP, server-sent events and run/event alike.
// Bytes become "text" when they are UTF-8 and "base64" otherwise, so that no
// byte is ever replaced.
func (e *Event) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"run":`...)
	dst = appendString(dst, string(e.Run))
	dst = append(dst, `,"seq":`...)
	dst = strconv.AppendUint(dst, uint64(e.Seq), 10)
	dst = append(dst, `,"time":"`...)
	dst = appendTime(dst, e.Time)
	dst = append(dst, `","kind":`...)
	dst = appendString(dst, string(e.Kind))
	if e.Turn != 0 {
		dst = append(dst, `,"turn":`...)
		dst = strconv.AppendUint(dst, uint64(e.Turn), 10)
	}
	if e.Stream != "" {
		dst = append(dst, `,"stream":`...)
		dst = appendString(dst, string(e.Stream))
	}
	switch {
	case len(e.Bytes) == 0:
	case utf8.Valid(e.Bytes):
		dst = append(dst, `,"text":`...)
		dst = appendString(dst, e.Bytes)
	default:
		dst = append(dst, `,"base64":"`...)
		dst = base64.StdEncoding.AppendEncode(dst, e.Bytes)
		dst = append(dst, '"')
	}
	if len(e.Data) > 0 {
		dst = append(dst, `,"data":`...)
		dst = append(dst, e.Data...)
	}
	return append(dst, '}')
}

// AppendJSON appends the JSON form of the description, with times in UTC. It is
// written by hand because a short run encodes it several times.
func (i *Info) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"id":`...)
	dst = appendString(dst, string(i.ID))
	dst = appendMember(dst, `,"name":`, i.Name)
	dst = append(dst, `,"engine":`...)
	dst = appendString(dst, i.Engine)
	if len(i.Labels) > 0 {
		dst = append(dst, `,"labels":`...)
		sep := byte('{')
		for _, k := range slices.Sorted(maps.Keys(i.Labels)) {
			dst = append(dst, sep)
			dst = appendString(dst, k)
			dst = append(dst, ':')
			dst = appendString(dst, i.Labels[k])
			sep = ','
		}
		dst = append(dst, '}')
	}
	if len(i.Argv) > 0 {
		dst = append(dst, `,"argv":`...)
		sep := byte('[')
		for _, arg := range i.Argv {
			dst = append(dst, sep)
			dst = appendString(dst, arg)
			sep = ','
		}
		dst = append(dst, ']')
	}
	dst = appendMember(dst, `,"cwd":`, i.Cwd)
	if i.TTY {
		dst = append(dst, `,"tty":true`...)
	}
	dst = appendSize(dst, `,"size":`, i.Size)
	dst = appendSize(dst, `,"first_size":`, i.FirstSize)
	if i.Pid != 0 {
		dst = append(dst, `,"pid":`...)
		dst = strconv.AppendInt(dst, int64(i.Pid), 10)
	}
	dst = appendMember(dst, `,"owner":`, i.Owner)
	dst = appendMember(dst, `,"node":`, i.Node)
	if m := i.Mirror; m != nil {
		dst = appendString(append(dst, `,"mirror":{"node":`...), m.Node)
		dst = append(dst, `,"last":`...)
		dst = strconv.AppendUint(dst, uint64(m.Last), 10)
		dst = append(dst, `,"lag_ms":`...)
		dst = append(strconv.AppendInt(dst, m.LagMs, 10), '}')
	}
	dst = append(dst, `,"created":"`...)
	dst = i.Created.UTC().AppendFormat(dst, time.RFC3339Nano)
	dst = append(dst, '"')
	if !i.Ended.IsZero() {
		dst = append(dst, `,"ended":"`...)
		dst = i.Ended.UTC().AppendFormat(dst, time.RFC3339Nano)
		dst = append(dst, '"')
	}
	dst = append(dst, `,"state":`...)
	dst = appendString(dst, string(i.State))
	if o := i.Outcome; o != nil {
		dst = append(dst, `,"outcome":{"kind":`...)
		dst = appendString(dst, string(o.Kind))
		dst = append(dst, `,"code":`...)
		dst = strconv.AppendInt(dst, int64(o.Code), 10)
		dst = appendMember(dst, `,"signal":`, o.Signal)
		dst = appendMember(dst, `,"reason":`, o.Reason)
		dst = append(dst, '}')
	}
	dst = append(dst, `,"last":`...)
	dst = strconv.AppendUint(dst, uint64(i.Last), 10)
	dst = append(dst, `,"bytes":`...)
	dst = strconv.AppendInt(dst, i.Bytes, 10)
	dst = appendMember(dst, `,"title":`, i.Title)
	dst = appendMember(dst, `,"turn_outcome":`, string(i.TurnOutcome))
	if i.Turn != 0 {
		dst = append(dst, `,"turn":`...)
		dst = strconv.AppendUint(dst, uint64(i.Turn), 10)
	}
	if i.Asks != nil {
		dst = append(dst, `,"asks":{"open":[`...)
		for n, seq := range i.Asks.Open {
			if n > 0 {
				dst = append(dst, ',')
			}
			dst = strconv.AppendUint(dst, uint64(seq), 10)
		}
		dst = append(dst, `],"count":`...)
		dst = strconv.AppendInt(dst, int64(i.Asks.Count), 10)
		dst = append(dst, '}')
	}
	if i.Ledger != nil {
		dst = i.Ledger.appendJSON(append(dst, `,"ledger":`...))
	}
	if i.Isolation != nil {
		if b, err := json.Marshal(i.Isolation); err == nil { // strings always encode
			dst = append(append(dst, `,"isolation":`...), b...)
		}
	}
	if i.Workspace != nil {
		if b, err := json.Marshal(i.Workspace); err == nil {
			dst = append(append(dst, `,"workspace":`...), b...)
		}
	}
	if len(i.Details) > 0 {
		dst = append(dst, `,"details":`...)
		dst = append(dst, i.Details...)
	}
	return append(dst, '}')
}

// appendMember appends a member that is left out when it is empty.
func appendMember(dst []byte, name, value string) []byte {
	if value == "" {
		return dst
	}
	return appendString(append(dst, name...), value)
}

// appendSize appends a member that is left out when it is zero.
func appendSize(dst []byte, name string, s Size) []byte {
	if s == (Size{}) {
		return dst
	}
	dst = append(append(dst, name...), `{"rows":`...)
	dst = strconv.AppendUint(dst, uint64(s.Rows), 10)
	dst = append(dst, `,"cols":`...)
	dst = strconv.AppendUint(dst, uint64(s.Cols), 10)
	return append(dst, '}')
}

// MarshalJSON implements [json.Marshaler] with [Info.AppendJSON].
func (i Info) MarshalJSON() ([]byte, error) { return i.AppendJSON(nil), nil }

// MarshalJSON implements [json.Marshaler] with [Event.AppendJSON].
func (e Event) MarshalJSON() ([]byte, error) { return e.AppendJSON(nil), nil }

// UnmarshalJSON implements [json.Unmarshaler]. Unknown members are ignored.
func (e *Event) UnmarshalJSON(b []byte) error {
	var w struct {
		Run    RunID           `json:"run"`
		Seq    Seq             `json:"seq"`
		Time   time.Time       `json:"time"`
		Kind   Kind            `json:"kind"`
		Turn   Seq             `json:"turn,omitempty"`
		Stream Stream          `json:"stream,omitempty"`
		Text   *string         `json:"text,omitempty"`
		Base64 []byte          `json:"base64,omitempty"`
		Data   json.RawMessage `json:"data,omitempty"`
	}
	if err := json.Unmarshal(b, &w); err != nil {
		return fmt.Errorf("decode event: %w", err)
	}
	if w.Text != nil && w.Base64 != nil {
		return fmt.Errorf("decode event %d: both text and base64", w.Seq)
	}
	if y := w.Time.UTC().Year(); y < 0 || y > 9999 {
		return fmt.Errorf("decode event %d: the year %d has no four digits", w.Seq, y)
	}
	if bytes.ContainsAny(w.Data, "\r\n") { // an event is one line
		var line bytes.Buffer
		if err := json.Compact(&line, w.Data); err != nil {
			return fmt.Errorf("decode event %d: %w", w.Seq, err)
		}
		w.Data = line.Bytes()
	}
	*e = Event{Run: w.Run, Seq: w.Seq, Time: w.Time, Kind: w.Kind, Turn: w.Turn, Stream: w.Stream, Bytes: w.Base64, Data: w.Data}
	if w.Text != nil {
		e.Bytes = []byte(*w.Text)
	}
	if len(e.Data)+len(e.Bytes) > MaxEventBytes {
		return fmt.Errorf("decode event %d: payload exceeds %d bytes", w.Seq, MaxEventBytes)
	}
	return nil
}

// The forms of structs with durations: the member of the same name in the outer
// struct hides the one of the embedded struct.
type (
	plainLimits  Limits
	plainControl Control

	limitsJSON struct {
		plainLimits
		Wall  milliseconds `json:"wall_ms,omitempty"`
		Idle  milliseconds `json:"idle_ms,omitempty"`
		Grace milliseconds `json:"grace_ms,omitempty"`
	}
	controlJSON struct {
		plainControl
		Grace milliseconds `json:"grace_ms,omitempty"`
	}
)

// MarshalJSON implements [json.Marshaler]. Parts of a millisecond are rounded
// up.
func (l Limits) MarshalJSON() ([]byte, error) {
	return json.Marshal(limitsJSON{plainLimits(l), milliseconds(l.Wall), milliseconds(l.Idle), milliseconds(l.Grace)})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (l *Limits) UnmarshalJSON(b []byte) error {
	w := limitsJSON{plainLimits(*l), milliseconds(l.Wall), milliseconds(l.Idle), milliseconds(l.Grace)}
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*l = Limits(w.plainLimits)
	l.Wall, l.Idle, l.Grace = time.Duration(w.Wall), time.Duration(w.Idle), time.Duration(w.Grace)
	return nil
}

// MarshalJSON implements [json.Marshaler]. Parts of a millisecond are rounded
// up.
func (c Control) MarshalJSON() ([]byte, error) {
	return json.Marshal(controlJSON{plainControl(c), milliseconds(c.Grace)})
}

// UnmarshalJSON implements [json.Unmarshaler].
func (c *Control) UnmarshalJSON(b []byte) error {
	w := controlJSON{plainControl(*c), milliseconds(c.Grace)}
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	*c = Control(w.plainControl)
	c.Grace = time.Duration(w.Grace)
	return nil
}

// milliseconds is a duration that is a whole number of milliseconds in JSON.
type milliseconds time.Duration

// MarshalJSON rounds away from zero, because zero means a default.
func (m milliseconds) MarshalJSON() ([]byte, error) {
	const round = milliseconds(time.Millisecond - 1)
	switch {
	case m > 0 && m <= math.MaxInt64-round:
		m += round
	case m < 0 && m >= math.MinInt64+round:
		m -= round
	}
	return strconv.AppendInt(nil, int64(m/milliseconds(time.Millisecond)), 10), nil
}

func (m *milliseconds) UnmarshalJSON(b []byte) error {
	var n int64
	if err := json.Unmarshal(b, &n); err != nil {
		return err
	}
	const most = math.MaxInt64 / int64(time.Millisecond)
	if n > most || n < -most {
		return fmt.Errorf("%d milliseconds are too many", n)
	}
	*m = milliseconds(n) * milliseconds(time.Millisecond)
	return nil
}
