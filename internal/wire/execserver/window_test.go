package execserver

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// oneRun is a backend that knows one run.
type oneRun struct{ spool.Backend }

func (oneRun) Stat(context.Context, spool.RunID) (spool.Info, error) {
	return spool.Info{ID: "r"}, nil
}

// A window that is larger than maxWindow, or makes no sense, becomes the default.
func TestWindowIsBounded(t *testing.T) {
	c := &conn{ctx: t.Context(), backend: oneRun{}, follows: make(map[uint32]*follow)}
	for i, tt := range []struct{ window, want int64 }{
		{1, 1}, {maxWindow, maxWindow}, {maxWindow + 1, runproto.DefaultWindow}, {0, runproto.DefaultWindow}, {-1, runproto.DefaultWindow},
	} {
		f, err := c.followRun(t.Context(), json.RawMessage(fmt.Sprintf(`{"follow":%d,"run":"r","window_bytes":%d}`, i, tt.window)))
		if err != nil || f.credit != tt.want {
			t.Errorf("window %d: %+v, %v", tt.window, f, err)
		}
	}
}

// An acknowledgement in the form of our clients is read as any other.
func TestPlainAck(t *testing.T) {
	for text, plain := range map[string]bool{
		`{"follow":7,"bytes":65536}`:                        true,
		`{"follow":0,"bytes":0}`:                            true,
		`{"follow":4294967295,"bytes":9223372036854775807}`: true,
		`{"follow":4294967296,"bytes":1}`:                   false,
		`{"follow":1,"bytes":9223372036854775808}`:          false,
		`{"follow":1,"bytes":-1}`:                           false,
		`{"follow":01,"bytes":1}`:                           false,
		`{"follow":1,"bytes":01}`:                           false,
		`{"follow":1,"bytes":+1}`:                           false,
		`{"follow":1,"bytes":}`:                             false,
		`{"follow":,"bytes":1}`:                             false,
		`{"follow":1,"bytes":1_0}`:                          false,
		`{"follow":1,"bytes":1,"more":2}`:                   false,
		`{"bytes":1,"follow":1}`:                            false,
		`{"follow":1, "bytes":1}`:                           false,
		`{"follow":1}`:                                      false,
		``:                                                  false,
	} {
		got, ok := plainAck([]byte(text))
		if ok != plain {
			t.Errorf("%s: plain %v", text, ok)
		}
		var want runproto.AckParams
		if err := decode([]byte(text), &want, "follow", "bytes"); plain && (err != nil || got != want) {
			t.Errorf("%s: %+v, want %+v, %v", text, got, want, err)
		}
	}
	made, err := json.Marshal(runproto.AckParams{Follow: 3, Bytes: 1 << 40})
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := plainAck(made); !ok || p.Follow != 3 || p.Bytes != 1<<40 {
		t.Errorf("%s: %+v, %v", made, p, ok)
	}
	if n := testing.AllocsPerRun(100, func() { plainAck(made) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}
