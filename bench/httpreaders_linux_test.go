package main

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/httpapi"
)

// TestCrowd has a few readers follow a run of a real server, cuts them all at once, and
// checks that none has lost or repeated an event.
func TestCrowd(t *testing.T) {
	h, err := openHost(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	api := httpapi.New(httpapi.Options{Backend: h})
	server := httptest.NewServer(api)
	t.Cleanup(func() {
		api.Close(0)
		server.Close()
	})
	r, err := spool.Start(t.Context(), h, spool.Spec{Argv: []string{"sh", "-c", "while read l; do echo $l; done"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	stdin := r.Stdin(t.Context())
	const readers = 20
	plan, err := json.Marshal(crowdPlan{strings.TrimPrefix(server.URL, "http://"), "", []string{eventsPath(r.ID())}, readers})
	if err != nil {
		t.Fatal(err)
	}
	in, out := newPipe(t), newPipe(t)
	failed := make(chan error, 1)
	go func() {
		err := runCrowd(in.r, out.w)
		failed <- err
		_ = out.w.CloseWithError(io.EOF)
	}()
	say := func(text string) {
		if _, err := io.WriteString(in.w, text); err != nil {
			t.Fatal(err)
		}
	}
	write := func() {
		if _, err := io.WriteString(stdin, "hello\n"); err != nil {
			t.Fatal(err)
		}
	}
	say(string(plan) + "\n")
	said := bufio.NewReader(out.r)
	if line, err := said.ReadString('\n'); line != "ready\n" {
		t.Fatalf("the readers said %q: %v; %v", line, err, <-failed)
	}
	write()
	say("cut\n")
	for range 3 {
		write()
	}
	if err := stdin.Close(); err != nil {
		t.Fatal(err)
	}
	var result crowdResult
	if err := json.NewDecoder(said).Decode(&result); err != nil {
		t.Fatalf("%v; %v", err, <-failed)
	}
	info, err := r.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if result.Lost != 0 || result.Twice != 0 || result.Events != readers*int64(info.Last) {
		t.Errorf("%d readers of %d events: %+v", readers, info.Last, result)
	}
}

// pipes is a pipe in this process.
type pipes struct {
	r *io.PipeReader
	w *io.PipeWriter
}

func newPipe(t *testing.T) pipes {
	r, w := io.Pipe()
	t.Cleanup(func() { _ = w.Close() })
	return pipes{r, w}
}
