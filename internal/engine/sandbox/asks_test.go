package sandbox

import (
	"context"
	"testing"

	"github.com/spool-run/spool/python"
)

// Each ask is in the log for good, so a script must not make any number of them.
func TestAsksOfATurnAreBounded(t *testing.T) {
	s := &session{config: &python.SandboxConfig{Offer: []string{"*"}}}
	for _, tt := range []struct {
		name string
		cell *cell
	}{
		{"number", &cell{asks: MaxAsks}},
		{"bytes", &cell{asksBytes: MaxAsksBytes - 1}},
	} {
		reply := s.ask(context.Background(), &turn{Value: tt.cell}, "my.own", []byte("{}"))
		if reply.Error == nil || reply.Error.Code != "EDQUOT" {
			t.Errorf("%s: reply %+v, want EDQUOT", tt.name, reply)
		}
	}
	c := &cell{}
	for i := range MaxAsks + 1 {
		if got, want := c.countAsk(2), i < MaxAsks; got != want {
			t.Fatalf("ask %d is allowed: %v, want %v", i, got, want)
		}
	}
	c = &cell{}
	for i := range MaxAsksBytes/MaxAskBytes + 1 {
		if got, want := c.countAsk(MaxAskBytes), i < MaxAsksBytes/MaxAskBytes; got != want {
			t.Fatalf("ask %d of %d bytes is allowed: %v, want %v", i, MaxAskBytes, got, want)
		}
	}
}
