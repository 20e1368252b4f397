package sandbox

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
	"github.com/spool-run/spool/python"
)

// MaxQueued scripts wait; a further one is refused.
func TestScriptsThatWaitAreBounded(t *testing.T) {
	log := enginetest.NewLog()
	s := newSession(nil, &spool.Spec{}, &python.SandboxConfig{}, nil, log) // it takes none of them yet
	defer s.cancel(context.Canceled)
	in := spool.Input{Kind: spool.InputCell, Data: []byte(`{"code":"1"}`)}
	for i := range MaxQueued {
		if err := s.Takes(in); err != nil {
			t.Fatalf("%d scripts wait: %v", i, err)
		}
		var err error
		if in.Seq, err = log.Append(spool.Event{Kind: spool.KindInput, Data: fmt.Appendf(nil, `{"kind":"cell","data":%s}`, in.Data)}); err != nil {
			t.Fatal(err)
		}
		if err := s.Send(t.Context(), in); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Takes(in); !errors.Is(err, spool.ErrBusy) {
		t.Errorf("one more: %v", err)
	}
}

// An overlay hands out at most MaxChangeBytes of changed files.
func TestChangesOfAnOverlayAreBounded(t *testing.T) {
	s := &session{out: enginetest.NewLog()}
	for _, left := range []int64{MaxChangeBytes, 0} {
		if _, err := s.blob(nil, vfs.Change{Size: left + 1}, left); !errors.Is(err, vfs.EFBIG) {
			t.Errorf("a file of %d bytes where %d are left: %v", left+1, left, err)
		}
	}
}
