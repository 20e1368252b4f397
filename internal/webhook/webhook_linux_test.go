package webhook_test

import (
	"bytes"
	"crypto/hmac"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/kernel"
	"github.com/spool-run/spool/internal/engine/process"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/webhook"
	"github.com/spool-run/spool/python"
)

// TestSender has a kernel ask something and a process end, and a server that fails at
// first take both, signed.
func TestSender(t *testing.T) {
	h, err := host.Open(host.Options{Dir: t.TempDir(), Engines: map[string]host.NewEngine{
		spool.EngineProcess: func(owner string) (engine.Engine, error) { return process.New(process.Options{Owner: owner}) },
		python.EngineKernel: func(owner string) (engine.Engine, error) { return kernel.New(kernel.Options{Owner: owner}) },
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	secret := []byte("open sesame")
	got := make(chan webhook.Message, 10)
	var requests atomic.Int32
	hook := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		at, _, _ := strings.Cut(strings.TrimPrefix(r.Header.Get(webhook.SignatureHeader), "t="), ",")
		seconds, err := strconv.ParseInt(at, 10, 64)
		if want := webhook.Sign(secret, time.Unix(seconds, 0), body); err != nil || !hmac.Equal([]byte(want), []byte(r.Header.Get(webhook.SignatureHeader))) {
			t.Errorf("signature %q, want %q", r.Header.Get(webhook.SignatureHeader), want)
		}
		if requests.Add(1) == 1 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		var m webhook.Message
		if err := json.Unmarshal(body, &m); err != nil {
			t.Errorf("%s: %v", body, err)
		}
		got <- m
	}))
	defer hook.Close()
	var log bytes.Buffer
	s, err := webhook.Start(t.Context(), h, webhook.Options{URL: hook.URL, Secret: secret, Page: "http://127.0.0.1:7766", Logger: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil || log.Len() > 0 {
			t.Errorf("%v, log %s", err, &log)
		}
	}()
	next := func(about spool.RunID) webhook.Message {
		t.Helper()
		for {
			select {
			case m := <-got:
				if m.Run.ID == about {
					return m
				}
			case <-time.After(90 * time.Second):
				t.Fatal("no message")
			}
		}
	}
	info, err := h.Start(t.Context(), spool.Spec{Engine: python.EngineKernel, Name: "book", Cwd: "/tmp", Config: json.RawMessage(`{"input":"ask"}`)})
	if err != nil {
		t.Fatal(err)
	}
	run := spool.Attach(h, info.ID)
	if _, err := run.Send(t.Context(), spool.Input{Kind: spool.InputCell, Data: json.RawMessage(`{"code":"input('who? ')"}`)}); err != nil {
		t.Fatal(err)
	}
	m := next(info.ID)
	if m.Ask == nil || m.Done != nil || m.Ask.Prompt != "who? " || m.Text != "book asks: who? " || m.URL != "http://127.0.0.1:7766/runs/"+string(info.ID) || m.ID == "" {
		t.Errorf("ask: %+v", m)
	}
	if requests.Load() != 2 {
		t.Errorf("%d requests", requests.Load())
	}
	// A run that ends at once.
	quick, err := h.Start(t.Context(), spool.Spec{Argv: []string{"sh", "-c", "exit 3"}, Name: "make", Cwd: "/"})
	if err != nil {
		t.Fatal(err)
	}
	if m := next(quick.ID); m.Done == nil || m.Ask != nil || m.Done.Outcome == nil || m.Done.Outcome.Code != 3 || !strings.HasPrefix(m.Text, "make ended: exited") {
		t.Errorf("done: %+v", m)
	}
	if err := h.Control(t.Context(), info.ID, spool.Control{Op: spool.ControlKill}); err != nil {
		t.Fatal(err)
	}
	if m := next(info.ID); m.Done == nil {
		t.Errorf("after the kill: %+v", m)
	}
}
