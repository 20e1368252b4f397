package client

import (
	"encoding/binary"
	"encoding/json"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// FuzzDeliver gives frames of a server to a follow. The events that a reader
// sees come in order, each once, and none comes after the closed event; a relay
// of records takes no frame that a reader refuses for its order.
func FuzzDeliver(f *testing.F) {
	frame := make([]byte, runproto.BinaryHeader)
	for _, e := range []spool.Event{
		{Seq: 3, Kind: spool.KindOutput, Stream: spool.Stdout, Bytes: []byte("hi")},
		{Seq: 9, Kind: spool.KindTruncated, Data: []byte(`{"from":4,"to":9}`)},
		{Seq: 10, Kind: spool.KindClosed},
	} {
		var err error
		if frame, err = record.Append(frame, &e); err != nil {
			f.Fatal(err)
		}
	}
	f.Add(frame, uint64(2))
	f.Add(frame, uint64(3))
	f.Add(frame[:len(frame)-1], uint64(2))
	backwards, err := record.Append(make([]byte, runproto.BinaryHeader), &spool.Event{Seq: 1, Kind: spool.KindTruncated})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(backwards, uint64(5))
	after, err := record.Append(frame, &spool.Event{Seq: 11, Kind: spool.KindOutput})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(after, uint64(2))
	f.Fuzz(func(t *testing.T, frame []byte, after uint64) {
		if len(frame) < runproto.BinaryHeader {
			return // refused by [connection.Binary]
		}
		last, closed := spool.Seq(after), false
		reader := follow{run: "r", after: spool.Seq(after), yield: func(e spool.Event, err error) bool {
			if err != nil || e.Seq <= last || closed || e.Run != "r" {
				t.Fatalf("event %d of run %q after %d, closed: %v, %v", e.Seq, e.Run, last, closed, err)
			}
			last, closed = e.Seq, e.Kind == spool.KindClosed
			return true
		}}
		failed := reader.deliver(frame)
		relayed := 0
		relay := follow{run: "r", after: spool.Seq(after), relay: func(b []byte) bool { relayed = len(b); return true }}
		if err := relay.deliver(frame); err == nil {
			if relayed != len(frame)-runproto.BinaryHeader || relay.after < spool.Seq(after) {
				t.Fatalf("%d of %d bytes were relayed, up to event %d", relayed, len(frame), relay.after)
			}
			if failed == nil && (relay.after != last || relay.done != closed) {
				t.Fatalf("the relay is at %d, the reader at %d", relay.after, last)
			}
		} else if failed == nil {
			t.Fatalf("the reader took it, the relay did not: %v", err)
		}
	})
}

// FuzzConnection gives the messages of a server to a connection with one
// follow. What is of another follow does not reach it.
func FuzzConnection(f *testing.F) {
	f.Add([]byte{runproto.BinaryEvents, 1, 0, 0, 0, 9}, "run/end", []byte(`{"follow":1}`))
	f.Add([]byte{runproto.BinaryEvents, 2, 0, 0, 0}, "run/end", []byte(`{"follow":2,"error":{"code":-32004,"message":"m","data":{"name":"not_found"}}}`))
	f.Add([]byte{2}, "run/new", []byte(`[]`))
	f.Fuzz(func(t *testing.T, message []byte, method string, params []byte) {
		c := &connection{streams: make(map[uint32]*stream)}
		s, err := c.open(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		err = c.Binary(message)
		ours := len(message) >= runproto.BinaryHeader && message[0] == runproto.BinaryEvents && binary.LittleEndian.Uint32(message[1:]) == s.id
		if ours != (len(s.frames) == 1) || err != nil && ours {
			t.Fatalf("%x: %d frames, %v", message, len(s.frames), err)
		}
		if !json.Valid(params) {
			return // refused when the message is parsed
		}
		var end runproto.EndParams
		_ = c.Notification(method, params)
		if s.ended && (method != "run/end" || json.Unmarshal(params, &end) != nil || end.Follow != s.id || (s.err != nil) != (end.Error != nil)) {
			t.Fatalf("%s %s ended the follow: %v", method, params, s.err)
		}
	})
}
