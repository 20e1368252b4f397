package kernel

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/python"
)

// FuzzDecodeValue checks that a message of an interpreter decodes to values
// that encode to the same values.
func FuzzDecodeValue(f *testing.F) {
	f.Add(appendValue(nil, dict{"a": []any{int64(1), "x", []byte{1}, nil, true}, "b": int64(1) << 60}))
	f.Add([]byte("[\xff\xff\xff\x7f"))
	f.Add(bytes.Repeat([]byte("[\x01\x00\x00\x00"), 1000))
	f.Add([]byte("l\x00\x00\x00\x80"))
	f.Add([]byte("{u\x03\x00\x00\x00a\xffbN0"))
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := decodeValue(b)
		if err != nil {
			if !errors.Is(err, errFrame) {
				t.Errorf("%v is no error of a frame", err)
			}
			return
		}
		again, err := decodeValue(appendValue(nil, v))
		if err != nil {
			t.Fatalf("%#v does not come back: %v", v, err)
		}
		if diff := cmp.Diff(encodable(v), encodable(again)); diff != "" {
			t.Error(diff)
		}
	})
}

// encodable replaces what is only ever decoded: numbers that are no int64.
func encodable(v any) any {
	switch v := v.(type) {
	case nil, bool, int64, string, null:
		return v
	case []byte:
		return string(v)
	case []any:
		list := make([]any, len(v))
		for i := range v {
			list[i] = encodable(v[i])
		}
		return list
	case dict:
		m := make(dict, len(v))
		for k := range v {
			m[k] = encodable(v[k])
		}
		return m
	}
	return nil
}

// FuzzAppendText checks that any text can be sent to an interpreter.
func FuzzAppendText(f *testing.F) {
	f.Add("print('hi')")
	f.Add("ünï\x00\U0001F600")
	f.Add("a\xffb")
	f.Fuzz(func(t *testing.T, text string) {
		got, err := decodeValue(appendValue(nil, dict{"code": text, text: []string{text}}))
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		if valid := string([]rune(text)); len(valid) == len(text) && got.(dict)["code"] != text {
			t.Errorf("%q became %q", text, got)
		}
	})
}

// nowhere is a log that takes events and stores blobs if it is told to.
type nowhere struct{ blobs bool }

func (nowhere) Append(spool.Event) (spool.Seq, error) { return 1, nil }
func (nowhere) Hold()                                 {}
func (nowhere) Release()                              {}

func (n nowhere) PutBlob(mime string, r io.Reader) (spool.Blob, error) {
	if !n.blobs {
		return spool.Blob{}, fmt.Errorf("store blob: %w", spool.ErrUnsupported)
	}
	size, err := io.Copy(io.Discard, r)
	return spool.Blob{Digest: "sha256:00", Size: size, MIME: mime}, err
}

// FuzzMessages reads the messages of an interpreter as they come, in two parts,
// and makes a display of each. Every display is JSON and has no form that the
// message does not have.
func FuzzMessages(f *testing.F) {
	plot := dict{"t": "display", "d": "id", "u": true, "b": dict{"text/plain": "x", "image/png": []byte{1}, "application/json": dict{"blob": "sha256:00"}, "other": "x"}, "m": dict{"image/png": dict{"width": int64(5)}}}
	f.Add(appendFrame(appendFrame(nil, dict{"t": "ready", "version": "3.13"}), plot), uint16(9), true)
	f.Add(appendFrame(nil, dict{"b": dict{"image/jpeg": "not base64", "text/html": []byte{0xff}}}), uint16(3), false)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, uint16(0), false)
	f.Fuzz(func(t *testing.T, stream []byte, cut uint16, blobs bool) {
		at := min(int(cut), len(stream))
		p := &interpreter{incoming: bytes.Clone(stream[:at])}
		var sizes int
		read := func() bool {
			for {
				m, err := p.nextMessage()
				if err != nil {
					return false
				}
				if m == nil {
					return true
				}
				sizes++
				d, _ := display(m, nowhere{blobs})
				b, err := json.Marshal(d)
				if err != nil {
					t.Fatalf("%v: %v", m, err)
				}
				var back python.Display
				if err := json.Unmarshal(b, &back); err != nil {
					t.Fatalf("%s: %v", b, err)
				}
				bundle, _ := m["b"].(dict)
				if len(back.Bundle) > len(bundle) {
					t.Fatalf("%d forms of %d", len(back.Bundle), len(bundle))
				}
			}
		}
		if read() {
			p.incoming = append(p.incoming, stream[at:]...)
			read()
		}
		if 4*sizes > len(stream) {
			t.Fatalf("%d messages in %d bytes", sizes, len(stream))
		}
	})
}

// FuzzConfig checks that the configuration of a kernel is complete once it is
// accepted, and that its times are not negative.
func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"interpreter":"python3","zygote":"off","input":"ask","cell_timeout_ms":1000,"tools":["f"],"preload":["json"]}`))
	f.Add([]byte(`{"again_ms":9223372036854775807,"terminate_ms":1,"kill_ms":9223372036854775806}`))
	f.Add([]byte(`{"Zygote":"off"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		c, err := parseConfig(b)
		if err != nil {
			return
		}
		if c.Zygote == "" || c.Input == "" {
			t.Errorf("%s: %+v", b, c)
		}
		if s := scheduleOf(&c); s.secondInterrupt < 0 || s.terminate < s.secondInterrupt || s.kill < s.terminate {
			t.Errorf("%s: %+v", b, s)
		}
	})
}
