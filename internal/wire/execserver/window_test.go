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
		f, err := c.newFollow(t.Context(), json.RawMessage(fmt.Sprintf(`{"follow":%d,"run":"r","window_bytes":%d}`, i, tt.window)))
		if err != nil || f.credit != tt.want {
			t.Errorf("window %d: %+v, %v", tt.window, f, err)
		}
	}
}
