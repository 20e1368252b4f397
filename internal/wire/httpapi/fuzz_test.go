package httpapi_test

import (
	"encoding/json"
	"testing"

	"github.com/spool-run/spool/internal/wire/httpapi"
)

// FuzzAttachRequest checks that a message of an attached client that is accepted asks
// for one thing, and means the same once it is written out.
func FuzzAttachRequest(f *testing.F) {
	for _, s := range []string{`{"ack":1}`, `{"eof":true}`, `{"signal":"SIGINT"}`, `{"resize":{"rows":1,"cols":2}}`, `{"resize":null}`, `{"ack":1,"ack":2}`, `[]`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		q, err := httpapi.ParseAttach(b)
		if err != nil {
			return
		}
		out, err := json.Marshal(q)
		if err != nil {
			t.Fatal(err)
		}
		var members map[string]json.RawMessage
		if err := json.Unmarshal(out, &members); err != nil || len(members) != 1 {
			t.Fatalf("%q has %d members, %v", b, len(members), err)
		}
		again, err := httpapi.ParseAttach(out)
		if err != nil {
			t.Fatalf("%q is %s, which is refused: %v", b, out, err)
		}
		if q.Resize != nil && *q.Resize == *again.Resize {
			q.Resize, again.Resize = nil, nil
		}
		if q != again {
			t.Fatalf("%q is %+v, and that is %+v", b, q, again)
		}
	})
}
