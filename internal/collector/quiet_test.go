package collector

import (
	"context"
	"testing"
	"testing/synctest"
)

func TestQuietAfterWork(t *testing.T) {
	var q quiet
	for i, look := range []struct {
		allocated uint64
		want      bool
	}{
		{5 << 20, false},            // it starts
		{5<<20 + quietBytes, false}, // and works
		{5<<20 + quietBytes + 1, true},
		{5<<20 + quietBytes + 2, false}, // and was quiet before
		{6 << 20, false},                // too little work
		{7 << 20, false},
		{7<<20 + 1, true},
	} {
		got := q.look(look.allocated)
		if got != look.want {
			t.Errorf("look %d: %v", i, got)
		}
		if got {
			q.returned(look.allocated)
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
