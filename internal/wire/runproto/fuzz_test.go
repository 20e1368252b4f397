package runproto

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// FuzzDecodeError checks that any error of the other end can be read, and that
// it stays the same error over a second wire.
func FuzzDecodeError(f *testing.F) {
	for _, n := range errorNames {
		f.Add(n.code, n.sentinel.Error(), []byte(`{"name":"`+n.name+`","errno":2}`))
	}
	f.Add(-32603, "start", []byte(`{"start":"not_found","hint":"install it","cause":"no such file","errno":-5}`))
	f.Add(1, "", []byte(`{"start":1}`))
	f.Add(-32701, "of a later version", []byte(`{"name":"other"}`))
	f.Fuzz(func(t *testing.T, code int, message string, data []byte) {
		sent := &rpc.Error{Code: code, Message: message, Data: data}
		if !json.Valid(data) {
			sent.Data = nil
		}
		got := DecodeError(sent)
		again := DecodeError(EncodeError(got))
		if got == nil || got.Error() != again.Error() {
			t.Fatalf("%v became %v", got, again)
		}
		named := 0
		for _, n := range errorNames {
			if errors.Is(got, n.sentinel) {
				named++
			}
			if errors.Is(got, n.sentinel) != errors.Is(again, n.sentinel) {
				t.Errorf("%v is %v on one wire only", got, n.sentinel)
			}
		}
		if named > 1 {
			t.Errorf("%v is %d errors", got, named)
		}
		var one, two *spool.StartError
		if errors.As(got, &one) != errors.As(again, &two) || one != nil && (one.Reason != two.Reason || one.Hint != two.Hint) {
			t.Errorf("%v became %v", one, two)
		}
	})
}

// FuzzParams checks that the params and results of run/* decode to the same
// value after they were encoded.
func FuzzParams(f *testing.F) {
	for i, seed := range []string{
		`{"run":"a1"}`, `{"filter":{"live":true,"labels":{"a":"b"},"since":"2026-11-15T01:02:03Z"}}`,
		`{"runs":[{"id":"a1","engine":"process","created":"2026-11-15T01:02:03Z","state":"running","last":1,"bytes":2}],"more":true,"errors":[{"code":1,"message":"m"}]}`,
		`{"run":"a1","after":3,"max_bytes":65536,"wait_ms":1000}`,
		`{"events":[{"run":"a1","seq":1,"time":"2026-11-15T01:02:03Z","kind":"output","stream":"stdout","text":"hi"}],"next":1,"info":{"id":"a1"}}`,
		`{"follow":1,"run":"a1","after":2,"window_bytes":4096}`, `{"follow":1,"bytes":-5}`, `{"follow":7,"error":{"code":-32004,"message":"m","data":{"name":"not_found"}}}`,
		`{"run":"a1","input":{"kind":"stdin","bytes":"aGk=","id":"1"}}`, `{"run":"a1","control":{"op":"resize","size":{"rows":1,"cols":2}}}`,
		`{"run":"a1","digest":"sha256:00","offset":1,"max_bytes":2}`, `{"base64":"aGk=","eof":true}`,
	} {
		f.Add(byte(i), []byte(seed))
	}
	checks := []func([]byte) (string, string, error){
		again[RunParams], again[ListParams], again[ListResult], again[ReadParams], again[ReadResult], again[FollowParams],
		again[AckParams], again[EndParams], again[SendParams], again[ControlParams], again[BlobParams], again[BlobResult], again[EventParams],
	}
	f.Fuzz(func(t *testing.T, which byte, b []byte) {
		one, two, err := checks[int(which)%len(checks)](b)
		if err != nil || one != two {
			t.Fatalf("%s became %s: %v", one, two, err)
		}
	})
}

// again decodes a value, encodes it, and does both once more. It returns both
// encodings, which are empty if the value is refused.
func again[T any](b []byte) (one, two string, err error) {
	var first, second T
	if json.Unmarshal(b, &first) != nil {
		return "", "", nil
	}
	b, err = json.Marshal(first)
	if err != nil {
		return "", "", err
	}
	if err := json.Unmarshal(b, &second); err != nil {
		return string(b), "", err
	}
	c, err := json.Marshal(second)
	return string(b), string(c), err
}
