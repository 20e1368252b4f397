package collector

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestQuietAfterWork(t *testing.T) {
	var q quiet
	for i, look := range []struct {
		used time.Duration
		want bool
	}{
		{50 * time.Millisecond, false}, // it starts
		{60 * time.Millisecond, false}, // and works
		{61 * time.Millisecond, true},
		{62 * time.Millisecond, false},   // and was quiet before
		{62*time.Millisecond + 1, false}, // too little work
		{65 * time.Millisecond, false},
		{65*time.Millisecond + 1, true},
		{8 * time.Second, false},
		{8*time.Second + 700*time.Millisecond, true}, // the collector works longer after much work
	} {
		got := q.look(look.used)
		if got != look.want {
			t.Errorf("look %d: %v", i, got)
		}
		if got {
			q.returned(look.used)
		}
	}
}

// ReturnWhenQuiet ends with its context.
func TestReturnWhenQuietEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 3*lookEvery)
		defer cancel()
		ReturnWhenQuiet(ctx)
	})
}
