package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// seen is a message in a form that can be compared.
type seen struct {
	Kind    messageKind
	ID      int64
	Body    string
	Process string
	Seq     uint64
	Code    int64
	Chunk   string
}

func see(m *message) seen {
	return seen{m.kind, m.id, string(m.body), string(m.process), m.seq, m.exitCode, string(m.chunk)}
}

func TestScanMessage(t *testing.T) {
	for _, tt := range []struct {
		name, in string
		want     seen
	}{
		{"output", `{"method":"process/output","params":{"processId":"p-1","seq":3,"stream":"stdout","chunk":"aGkK"}}`,
			seen{Kind: kindOutput, Process: "p-1", Seq: 3, Chunk: "aGkK"}},
		{"members in another order", ` { "params" : { "chunk" : "aGkK" , "seq" : 3 , "processId" : "p-1" } , "method" : "process/output" } `,
			seen{Kind: kindOutput, Process: "p-1", Seq: 3, Chunk: "aGkK"}},
		{"empty output", `{"method":"process/output","params":{"processId":"p","seq":1,"stream":"pty","chunk":""}}`,
			seen{Kind: kindOutput, Process: "p", Seq: 1}},
		{"escapes", `{"method":"process\/output","params":{"processId":"a\"\\\u00e9","seq":1,"chunk":"\/\/\/\/"}}`,
			seen{Kind: kindOutput, Process: `a"\é`, Seq: 1, Chunk: "////"}},
		{"exited", `{"method":"process/exited","params":{"processId":"p","seq":2,"exitCode":137,"sandboxDenied":false}}`,
			seen{Kind: kindExited, Process: "p", Seq: 2, Code: 137}},
		{"closed", `{"method":"process/closed","params":{"processId":"p","seq":18446744073709551615}}`,
			seen{Kind: kindClosed, Process: "p", Seq: 1<<64 - 1}},
		{"unknown members", `{"trace":{"a":["}",{"b":"]\""}]},"method":"process/closed","params":{"x":[[]],"processId":"p","seq":1,"y":null}}`,
			seen{Kind: kindClosed, Process: "p", Seq: 1}},
		{"result", `{"id":7,"result":{"processId":"p","sandboxType":"none"}}`,
			seen{Kind: kindResult, ID: 7, Body: `{"processId":"p","sandboxType":"none"}`}},
		{"error", `{"error":{"code":-32600,"message":"no \"such\" process"},"id":-1}`,
			seen{Kind: kindError, ID: -1, Body: `{"code":-32600,"message":"no \"such\" process"}`}},
		{"another notification", `{"method":"fs/missingChanged","params":{"watchId":1}}`, seen{Kind: kindOther}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var m message
			if err := scanMessage([]byte(tt.in), &m); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, see(&m)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestScanMessageRefuses(t *testing.T) {
	for _, in := range []string{
		``, `[]`, `{`, `{"`, `{"a`, `{"a"`, `{"a":`, `{"a":1`, `{"a":1,`, `{"a":1,}`, `{"a" 1}`, `{"a":1 "b":2}`, `{}x`,
		`{"a":"\"}`, `{"a":{"b":"}`, `{"a":[`, `{"id":1.5,"result":{}}`, `{"method":7}`,
		`{"method":"process/output"}`, `{"method":"process/output","params":[]}`,
		`{"method":"process/output","params":{"seq":-1}}`, `{"method":"process/output","params":{"chunk":1}}`,
	} {
		var m message
		if err := scanMessage([]byte(in), &m); err == nil {
			t.Errorf("%s was decoded as %+v", in, see(&m))
		}
	}
}

func TestDecodeChunk(t *testing.T) {
	var data []byte
	for n := range 100 {
		want := bytes.Repeat([]byte{byte(n)}, n)
		m := message{chunk: []byte(base64.StdEncoding.EncodeToString(want))}
		var err error
		if data, err = m.decodeChunk(data); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(data, want) {
			t.Fatalf("decoded %q, want %q", data, want)
		}
	}
	if _, err := (&message{chunk: []byte("a")}).decodeChunk(nil); err == nil {
		t.Error("bad base64 was decoded")
	}
}

func FuzzDecodeBase64(f *testing.F) {
	f.Add([]byte("AAAAAAAAAAAAAAAAAAAAAAAAAAAA"))
	f.Add([]byte("aGVsbG8gZnJvbSB0aGUgY3Jvd2QK"))
	f.Add([]byte("aGVsbG8gZnJv\nbSB0aGUgY3Jvd2Q="))
	f.Add([]byte("aGVsbG8gZnJv!SB0aGUgY3Jvd2Q="))
	f.Fuzz(func(t *testing.T, in []byte) {
		size := base64.StdEncoding.DecodedLen(len(in))
		got, want := make([]byte, size), make([]byte, size)
		n, err := decodeBase64(got, in)
		m, wantErr := base64.StdEncoding.Decode(want, in)
		if (err != nil) != (wantErr != nil) {
			t.Fatalf("decode %q: %v, want %v", in, err, wantErr)
		}
		if err == nil && !bytes.Equal(got[:n], want[:m]) {
			t.Fatalf("decode %q: %q, want %q", in, got[:n], want[:m])
		}
	})
}

// FuzzScanMessage compares the scanner with encoding/json: both must decode
// alike what both accept, and the scanner must accept every output notification
// that a server can send.
func FuzzScanMessage(f *testing.F) {
	f.Add([]byte(`{"method":"process/output","params":{"processId":"p","seq":3,"stream":"stdout","chunk":"aGkK"}}`))
	f.Add([]byte(`{"id":7,"result":{"a":[1,"}"]}}`))
	f.Add([]byte(`{"error":{"code":1},"id":7}`))
	f.Add([]byte(`{"method":"process\/exited","params":{"exitCode":1,"x":{"y":["\\"]}}}`))
	f.Fuzz(func(t *testing.T, in []byte) {
		var m message
		if err := scanMessage(in, &m); err == nil {
			compareWithJSON(t, in, &m)
		}
		id := strings.ToValidUTF8(string(in), "?")
		note, err := json.Marshal(map[string]any{"method": "process/output", "params": map[string]any{
			"processId": id, "seq": len(in), "stream": "stdout", "chunk": in,
		}})
		if err != nil {
			t.Fatal(err)
		}
		if err := scanMessage(note, &m); err != nil {
			t.Fatalf("%s: %v", note, err)
		}
		data, err := m.decodeChunk(nil)
		if err != nil || m.kind != kindOutput || string(m.process) != id || m.seq != uint64(len(in)) || !bytes.Equal(data, in) {
			t.Fatalf("%s was read as %+v, %v", note, see(&m), err)
		}
	})
}

// compareWithJSON checks the members of m if encoding/json accepts the message.
// For a repeated member both keep the last.
func compareWithJSON(t *testing.T, in []byte, m *message) {
	var top, params map[string]json.RawMessage
	if json.Unmarshal(in, &top) != nil {
		return
	}
	if m.kind == kindResult || m.kind == kindError {
		if id, ok := top["id"]; ok && string(id) != strconv.FormatInt(m.id, 10) && string(id) != "-0" {
			t.Errorf("%s: id %d, want %s", in, m.id, id)
		}
		return
	}
	if m.kind == kindOther || json.Unmarshal(top["params"], &params) != nil {
		return
	}
	for name, got := range map[string][]byte{"processId": m.process, "chunk": m.chunk} {
		var want string
		if json.Unmarshal(params[name], &want) == nil && want != strings.ToValidUTF8(string(got), "\ufffd") && json.Valid(in) && !bytes.ContainsRune([]byte(want), '\ufffd') {
			t.Errorf("%s: %s is %q, want %q", in, name, got, want)
		}
	}
	var seq uint64
	if json.Unmarshal(params["seq"], &seq) == nil && seq != m.seq {
		t.Errorf("%s: seq %d, want %d", in, m.seq, seq)
	}
}

func BenchmarkScanMessage(b *testing.B) {
	raw := []byte(`{"method":"process/output","params":{"processId":"p-1","seq":3,"stream":"stdout","chunk":"` +
		base64.StdEncoding.EncodeToString(make([]byte, 8<<10)) + `"}}`)
	var m message
	var data []byte
	b.SetBytes(8 << 10)
	b.ReportAllocs()
	for b.Loop() {
		if err := scanMessage(raw, &m); err != nil {
			b.Fatal(err)
		}
		var err error
		if data, err = m.decodeChunk(data); err != nil {
			b.Fatal(err)
		}
	}
}
