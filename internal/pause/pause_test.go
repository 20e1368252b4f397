package pause_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/pause"
)

func TestFor(t *testing.T) {
	cause := errors.New("the cause")
	ended, end := context.WithCancelCause(t.Context())
	end(cause)
	for _, d := range []time.Duration{-1, 0, time.Nanosecond} {
		if err := pause.For(t.Context(), d); err != nil {
			t.Errorf("%v: %v", d, err)
		}
		if err := pause.For(ended, d); !errors.Is(err, cause) {
			t.Errorf("%v, ended: %v, want %v", d, err, cause)
		}
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(time.Millisecond, func() { cancel(cause) })
	if err := pause.For(ctx, time.Hour); !errors.Is(err, cause) {
		t.Errorf("ended meanwhile: %v, want %v", err, cause)
	}
}
