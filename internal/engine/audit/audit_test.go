package audit

import (
	"errors"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/enginetest"
)

func TestAuditLog(t *testing.T) {
	log := enginetest.NewLog()
	s, err := Engine{}.Start(t.Context(), spool.Spec{Stdin: true}, log)
	if err != nil {
		t.Fatal(err)
	}
	lines := spool.Input{Kind: spool.InputStdin, Bytes: []byte(`{"code":"audit","text":"a"}` + "\n" + `{"code":"audit","text":"b"}` + "\n")}
	if err := errors.Join(s.Takes(lines), s.Send(t.Context(), lines)); err != nil {
		t.Fatal(err)
	}
	for want, in := range map[error]spool.Input{
		spool.ErrInvalid:     {Kind: spool.InputStdin, Bytes: []byte("text\n")},
		spool.ErrUnsupported: {Kind: spool.InputCell},
	} {
		if err := s.Takes(in); !errors.Is(err, want) {
			t.Errorf("%s: %v", in.Kind, err)
		}
	}
	if err := s.Control(t.Context(), spool.Control{Op: spool.ControlInterrupt}); !errors.Is(err, spool.ErrUnsupported) {
		t.Errorf("interrupt: %v", err)
	}
	for range 2 {
		if err := s.Send(t.Context(), spool.Input{Kind: spool.InputEOF}); err != nil {
			t.Fatal(err)
		}
	}
	if o := s.Wait(); o.Kind != spool.Exited || o.Code != 0 {
		t.Errorf("%v", o)
	}
	if err := s.Takes(lines); !errors.Is(err, spool.ErrInputClosed) {
		t.Errorf("after the end: %v", err)
	}
	var kinds []spool.Kind
	for _, e := range log.All(t) {
		kinds = append(kinds, e.Kind)
	}
	if len(kinds) != 3 || kinds[0] != spool.KindNotice || kinds[1] != spool.KindNotice || kinds[2] != spool.KindExited {
		t.Errorf("%v", kinds)
	}
}

func TestAuditLogHasNoCommand(t *testing.T) {
	var se *spool.StartError
	if _, err := (Engine{}).Start(t.Context(), spool.Spec{Argv: []string{"true"}}, enginetest.NewLog()); !errors.As(err, &se) || se.Reason != engine.StartInvalid {
		t.Error(err)
	}
}
