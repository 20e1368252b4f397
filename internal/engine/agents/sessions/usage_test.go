package sessions

import (
	"os"
	"testing"
	"time"

	"github.com/spool-run/spool/agent"
)

func TestBookRemembersTotals(t *testing.T) {
	dir := t.TempDir()
	open := func() *Ledger {
		b, err := NewLedger(dir)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	b := open()
	if got := b.Total("codex:a"); got != nil {
		t.Errorf("a stranger used %+v", got)
	}
	b.Note("codex:a", agent.Spend{Input: 1})
	b.Note("codex:a", agent.Spend{Input: 270, CostUSD: 0.5})
	b.Note("claude:a", agent.Spend{Input: 7})
	b = open()
	if got := b.Total("codex:a"); got == nil || *got != (agent.Spend{Input: 270, CostUSD: 0.5}) {
		t.Errorf("total is %+v", got)
	}
	// What nobody went on with for long is forgotten.
	old := time.Now().Add(-Memory - time.Hour)
	if err := os.Chtimes(b.path("codex:a"), old, old); err != nil {
		t.Fatal(err)
	}
	b = open()
	if b.Total("codex:a") != nil || b.Total("claude:a") == nil {
		t.Error("the wrong session was forgotten")
	}
	if err := os.WriteFile(b.path("claude:a"), []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got := b.Total("claude:a"); got != nil {
		t.Errorf("a broken note says %+v", got)
	}
}
