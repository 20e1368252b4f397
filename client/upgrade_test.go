package client_test

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/client"
	"github.com/spool-run/spool/internal/servertest"
)

// copyOf is another build of the same program, as far as anybody can tell.
func copyOf(t *testing.T, path string) string {
	t.Helper()
	in, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	to := filepath.Join(t.TempDir(), "spool")
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return to
}

// isWithEcho reports whether a terminal shows what was written to it, and somewhere
// in between, perhaps inside a line, the echo of a line end that was typed.
func isWithEcho(text, written string) bool {
	same := 0
	for same < min(len(text), len(written)) && text[same] == written[same] {
		same++
	}
	for at := same; at >= max(0, same-2); at-- { // the echo may begin like what follows it
		if rest, ok := strings.CutPrefix(text[at:], "\r\n"); ok && rest == written[at:] {
			return true
		}
	}
	return false
}

// TestUpgrade replaces the server by one of another build while a hundred
// terminals are busy.
func TestUpgrade(t *testing.T) {
	const terminals, lines = 100, 400
	state := t.TempDir()
	server := servertest.Start(t, state, "--on-exit", "keep", "--listen", servertest.OwnAddress())
	c := dial(t, server.URL, client.Options{})
	spec := sh(fmt.Sprintf("i=0; while [ $i -lt %d ]; do echo line $i of $$; i=$((i+1)); [ $i = %d ] && read x; done; exit 3", lines, lines/2))
	spec.TTY = &spool.Size{Rows: 24, Cols: 80}

	runs := make([]*spool.Run, terminals)
	half := make(chan struct{}, terminals)
	got := make([]strings.Builder, terminals)
	outcomes := make([]spool.Outcome, terminals)
	var wg sync.WaitGroup
	for i := range runs {
		runs[i] = start(t, c, spec)
		wg.Go(func() {
			next, told := spool.Seq(1), false
			for e, err := range runs[i].Events(t.Context(), 0) {
				if err != nil || e.Seq != next {
					t.Errorf("terminal %d: event %d, want %d: %v", i, e.Seq, next, err)
					return
				}
				next++
				if o, ok := e.Outcome(); ok {
					outcomes[i] = o
				}
				got[i].Write(e.Bytes)
				if !told && strings.Contains(got[i].String(), fmt.Sprintf("line %d of", lines/2-1)) {
					told = true
					half <- struct{}{}
				}
			}
		})
	}
	// The first half of them is upgraded in the middle of writing.
	for range terminals / 2 {
		<-half
	}
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	next, err := servertest.StartCommand(t.Context(), copyOf(t, servertest.Binary(t)), "exec-server", "--state", state, "--listen", server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(next.Kill)
	for _, r := range runs {
		if _, err := r.Stdin(t.Context()).Write([]byte("\n")); err != nil {
			t.Fatal(err)
		}
	}
	wg.Wait()
	for i := range runs {
		info, err := runs[i].Info(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var want strings.Builder
		for n := range lines {
			fmt.Fprintf(&want, "line %d of %d\r\n", n, info.Pid)
		}
		if text := got[i].String(); !isWithEcho(text, want.String()) {
			t.Errorf("terminal %d wrote %d bytes, want %d and an echo", i, len(text), want.Len())
		}
		if outcomes[i] != (spool.Outcome{Kind: spool.Exited, Code: 3}) {
			t.Errorf("terminal %d: %v", i, outcomes[i])
		}
	}
	// New runs are the new build's.
	info, err := c.Start(t.Context(), sh("true"))
	if err != nil {
		t.Fatal(err)
	}
	if old, err := runs[0].Info(t.Context()); err != nil || old.Owner == info.Owner {
		t.Errorf("the old keeper got a new run: %v", err)
	}
}
