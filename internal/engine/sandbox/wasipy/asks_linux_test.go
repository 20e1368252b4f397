package wasipy

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
)

type askCounter struct {
	quietHost
	asks int
}

func (h *askCounter) Ask(context.Context, string, []byte) []byte {
	h.asks++
	return []byte(`{"value":1}`)
}

// An ask that is too large fails with an errno and does not reach the host.
func TestOversizedAskFailsWithE2BIG(t *testing.T) {
	b, _ := testPool(t, 1)
	h := &askCounter{}
	const code = `
import errno, spool, _spool
spool.ask("ok", data="x" * (8000 << 10))
assert "E2BIG" in _spool.call("big", "x" * ((8 << 20) + 1))
try:
    spool.ask("big", data="x" * (8 << 20))
except OSError as e:
    assert e.errno == errno.E2BIG, e
else:
    raise SystemExit(7)
`
	res, err := openTest(t, b).Run(context.Background(), guest.Script{Code: code}, h)
	if err != nil || res.ExitCode != 0 || h.asks != 1 {
		t.Errorf("%+v, %v; %d asks, want 1", res, err, h.asks)
	}
}

// The parent must not make room for frames that no worker may send.
func TestFramesFromAWorkerAreBoundedByKind(t *testing.T) {
	for kind, limit := range map[byte]int{frameAsk: guest.MaxAskBytes + 1<<10, frameFile: 8 << 20, frameRead: 8 << 20} {
		ours, theirs, err := pair()
		if err != nil {
			t.Fatal(err)
		}
		w, other, err := newWindow()
		if err != nil {
			t.Fatal(err)
		}
		unix.Close(other)
		l, err := newLane(ours, w, true)
		if err != nil {
			t.Fatal(err)
		}
		head := append(binary.LittleEndian.AppendUint32(nil, uint32(limit+1)), kind)
		if _, err := unix.Write(theirs, head); err != nil {
			t.Fatal(err)
		}
		unix.Close(theirs)
		if _, _, err := l.recv(patient); err == nil || errors.Is(err, io.EOF) || cap(l.rbuf) > limit {
			t.Errorf("frame %q of %d bytes: %v, room for %d", kind, limit+1, err, cap(l.rbuf))
		}
		l.close()
	}
}
