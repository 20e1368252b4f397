//go:build linux

package kernel_test

import (
	"context"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/servertest"
)

// A server that is killed in the middle of a cell, and one that takes its
// place, change nothing for the cell, its question and its readers.
func TestCellOutlivesTheServer(t *testing.T) {
	state := t.TempDir()
	server := servertest.Start(t, state, "--listen", servertest.OwnAddress())
	ctx, cancel := context.WithTimeout(t.Context(), settleIn)
	defer cancel()
	c, err := client.Dial(ctx, server.URL, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	s := lab{backend: c}.start(t, asking)
	turn := s.begin(spool.Cell{Code: "print('before')\nname = input('who? ')\nprint('after', name)\nname"})
	seq, _ := s.asked(turn)
	server.Kill()
	servertest.Start(t, state, "--listen", server.URL)
	if err := s.run.Reply(s.ctx, seq, "Ada"); err != nil {
		t.Fatal(err)
	}
	done := s.await(turn).want(spool.TurnOK)
	done.wantOutput("before\nafter Ada\n", spool.Stdout)
	done.wantResult("'Ada'")
	s.alive("name", "'Ada'")
	s.end() // while there is a server
}

// Two clients of one kernel see the same, and take turns.
func TestTwoClientsOfOneKernel(t *testing.T) {
	server := servertest.Start(t, t.TempDir())
	var clients [2]*client.Client
	for i := range clients {
		c, err := client.Dial(t.Context(), server.URL, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := c.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		})
		clients[i] = c
	}
	first := lab{backend: clients[0]}.start(t)
	second := &session{t, spool.Attach(clients[1], first.run.ID()), first.ctx, nil}
	first.ok("x = 1")
	second.ok("x += 1")
	first.alive("x", "2")
	turn := first.begin(spool.Cell{Code: "import time; print('ready', flush=True); time.sleep(60)"})
	second.see(second.run.Turn(turn.Seq()), "ready")
	if err := second.run.Turn(turn.Seq()).Interrupt(second.ctx, 0); err != nil {
		t.Fatal(err)
	}
	first.await(turn).want(spool.TurnInterrupted)
	second.alive("x", "2")
}
