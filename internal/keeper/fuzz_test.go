package keeper

import (
	"bytes"
	"encoding/json"
	"io"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// stream is the end of a connection whose peer has sent some bytes.
type stream struct {
	in  io.Reader
	out bytes.Buffer // what was written to it
}

func (s *stream) Read(b []byte) (int, error)  { return s.in.Read(b) }
func (s *stream) Write(b []byte) (int, error) { return s.out.Write(b) }
func (s *stream) Close() error                { return nil }

// framed returns messages as a peer sends them.
func framed(t testing.TB, messages ...[]byte) []byte {
	t.Helper()
	s := &stream{in: bytes.NewReader(nil)}
	f := newFrames(s, "fuzz")
	for i, m := range messages {
		if err := f.Write(t.Context(), i%2 == 0, m); err != nil {
			t.Fatal(err)
		}
	}
	return s.out.Bytes()
}

// FuzzFrames checks that a stream is divided into messages without adding or
// losing a byte: written again, they are the beginning of the stream.
func FuzzFrames(f *testing.F) {
	f.Add(framed(f, []byte{messageStart, 1}, []byte(`{"id":1,"method":"hello"}`), nil))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 1})
	f.Add([]byte{5, 0, 0, 0x80, 1, 2})
	f.Fuzz(func(t *testing.T, in []byte) {
		s := &stream{in: bytes.NewReader(in)}
		frames := newFrames(s, "fuzz")
		for {
			b, binary, err := frames.Read(t.Context())
			if err != nil {
				break
			}
			if err := frames.Write(t.Context(), binary, b); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.HasPrefix(in, s.out.Bytes()) {
			t.Errorf("%x was read as %x", in, s.out.Bytes())
		}
	})
}

// checker handles the messages of a connection as a keeper and a server do, as far
// as it decodes them.
type checker struct{ t *testing.T }

func (p checker) Request(r *rpc.Request)                     { r.Reply(nil, nil) }
func (p checker) Notification(string, json.RawMessage) error { return nil }
func (p checker) Malformed(err error) error                  { return err }

func (p checker) binary(kind byte, b []byte) error {
	switch kind {
	case messageStart:
		id, b, err := cutID(b)
		if err != nil {
			return err
		}
		start, err := record.DecodeStart(b)
		if err != nil {
			return err
		}
		again, err := record.AppendStart(appendHeader(nil, messageStart, id), &start)
		if err != nil {
			p.t.Errorf("a start that was decoded does not encode: %v", err)
		}
		if same, _, err := cutID(again[1:]); same != id || err != nil {
			p.t.Errorf("id %d became %d: %v", id, same, err)
		}
	case messageUpdate:
		_, err := record.DecodeUpdate(b)
		return err
	case messageNews, messageNoNews:
		return new(asked).answer(kind, b)
	}
	return nil
}

// FuzzTransport sends messages to a connection on which one start waits for its
// answer. The start is answered at most once, by a message with its id.
func FuzzTransport(f *testing.F) {
	info := record.AppendInfo(nil, &spool.Info{ID: "a1", Engine: "process", State: spool.StateRunning, Pid: 7})
	start, err := record.AppendStart(appendHeader(nil, messageStart, 1), &record.Start{Spec: spool.Spec{ID: "a1", Argv: []string{"true"}}})
	if err != nil {
		f.Fatal(err)
	}
	update, err := record.AppendUpdate([]byte{messageUpdate}, &record.Update{Info: spool.Info{ID: "a1"}, Last: 1})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(start, true)
	f.Add(update, true)
	f.Add(append(appendHeader(nil, messageStarted, 1), info...), true)
	f.Add(append(appendHeader(nil, messageRefused, 1), `{"code":-32603,"message":"no"}`...), true)
	f.Add(appendHeader(nil, messageStarted, 2), true)
	f.Add([]byte(`{"id":1,"method":"live"}`), false)
	f.Fuzz(func(t *testing.T, b []byte, binary bool) {
		s := &stream{in: bytes.NewReader(nil)}
		tr := newTransport(newFrames(s, "fuzz"))
		answer := make(chan startAnswer, 1)
		tr.starts[1] = func(a startAnswer) { answer <- a }
		for range 2 { // an answer that comes twice is an error
			_ = tr.receive(checker{t}, b, binary)
		}
		select {
		case a := <-answer:
			if id, _, err := cutID(b[1:]); !binary || id != 1 || err != nil || a.err == nil && b[0] != messageStarted {
				t.Errorf("%x answered the start: %+v", b, a)
			}
		default:
		}
		if len(tr.starts) > 1 {
			t.Errorf("%d starts wait", len(tr.starts))
		}
	})
}
