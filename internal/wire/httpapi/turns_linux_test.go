package httpapi_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/kernel"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/host/backendtest"
	"github.com/spool-run/spool/internal/wire/httpapi"
	"github.com/spool-run/spool/python"
)

// openKernels opens a host with a kernel engine.
func openKernels(t *testing.T) *host.Host {
	t.Helper()
	h, err := host.Open(host.Options{Dir: t.TempDir(), Engines: map[string]host.NewEngine{
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
	return h
}

func TestTurns(t *testing.T) {
	backendtest.RunTurns(t, func(t *testing.T) backendtest.Kernels {
		b := serve(t, httpapi.Options{Backend: openKernels(t)})
		return backendtest.Kernels{Backend: b, Reopen: func(*testing.T) spool.Backend {
			b.client.CloseIdleConnections()
			return b
		}}
	})
}

// TestTurnRoutes runs cells, answers an ask and reads a form, each with one request.
func TestTurnRoutes(t *testing.T) {
	b := serve(t, httpapi.Options{Backend: openKernels(t)})
	ctx := t.Context()
	info, err := b.Start(ctx, spool.Spec{Engine: python.EngineKernel, Cwd: t.TempDir(), Config: json.RawMessage(`{"input":"ask"}`)})
	if err != nil {
		t.Fatal(err)
	}
	run := "/v1/runs/" + string(info.ID)
	begin := func(id, code string, waitMs int) (turn httpapi.TurnInfo) {
		t.Helper()
		request := httpapi.TurnRequest{ID: id, Cell: &spool.Cell{Code: code}}
		if err := b.call(ctx, "POST", fmt.Sprintf("%s/turns?wait_ms=%d", run, waitMs), nil, request, &turn); err != nil {
			t.Fatal(err)
		}
		return turn
	}
	first := begin("one", "print('hi')", 50_000)
	if first.Done == nil || first.Done.Outcome != spool.TurnOK || first.Kind != spool.InputCell || first.Repeated {
		t.Errorf("the first turn is %+v", first)
	}
	if again := begin("one", "print('hi')", 50_000); again.Seq != first.Seq || !again.Repeated || again.Done == nil {
		t.Errorf("the first turn again is %+v", again)
	}

	asking := begin("", "name = input('who? ')", 0)
	var ask spool.Seq
	for e, err := range b.Follow(ctx, info.ID, asking.Seq) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Kind == spool.KindAsk {
			ask = e.Seq
			break
		}
	}
	answer := func(id string) error {
		return b.call(ctx, "POST", fmt.Sprintf("%s/asks/%d", run, ask), nil, httpapi.AnswerRequest{ID: id, Data: json.RawMessage(`"me"`)}, nil)
	}
	for range 2 { // the same answer twice is one
		if err := answer("mine"); err != nil {
			t.Fatal(err)
		}
	}
	err = answer("")
	said, ok := err.(*answered)
	if !ok || said.problem.Code != "not_asked" || said.problem.By != "owner" || said.problem.Time.IsZero() {
		t.Errorf("a second answer: %+v", err)
	}
	var turn httpapi.TurnInfo
	if err := b.call(ctx, "GET", fmt.Sprintf("%s/turns/%d?wait_ms=50000", run, asking.Seq), nil, nil, &turn); err != nil || turn.Done == nil {
		t.Errorf("the turn that asked: %+v, %v", turn, err)
	}
	if err := b.call(ctx, "GET", fmt.Sprintf("%s/turns/%d", run, asking.Seq), nil, nil, &turn); err != nil || turn.Done == nil {
		t.Errorf("the turn that asked, later: %+v, %v", turn, err)
	}

	shown := begin("", "class Shown:\n  def _repr_html_(self): return '<b>bold</b>'\nShown()", 50_000)
	var list httpapi.TurnList
	if err := b.call(ctx, "GET", run+"/turns", nil, nil, &list); err != nil || len(list.Turns) != 3 || list.Next != 0 || list.Turns[2].Seq != shown.Seq {
		t.Errorf("turns %+v, %v", list, err)
	}
	if err := b.call(ctx, "GET", run+"/turns?limit=2", nil, nil, &list); err != nil || len(list.Turns) != 2 || list.Next != asking.Seq {
		t.Errorf("two turns: %+v, %v", list, err)
	}
	var page httpapi.EventPage
	if err := b.call(ctx, "GET", fmt.Sprintf("%s/events?turn=%d&kind=result", run, shown.Seq), nil, nil, &page); err != nil || len(page.Events) != 1 {
		t.Fatalf("results %+v, %v", page, err)
	}
	form := fmt.Sprintf("%s/events/%d/forms/", run, page.Events[0].Seq)
	resp := b.get(t, form+"text/html")
	body, err := io.ReadAll(resp.Body)
	if err != nil || string(body) != "<b>bold</b>" || resp.Header.Get("Content-Type") != "text/html; charset=utf-8" ||
		!strings.HasPrefix(resp.Header.Get("Content-Security-Policy"), "sandbox; default-src 'none'") || resp.Header.Get("X-Frame-Options") != "SAMEORIGIN" {
		t.Errorf("the form is %q with %v, %v", body, resp.Header, err)
	}
	if resp := b.get(t, form+"text/html", "Range", "bytes=0-2"); resp.StatusCode != http.StatusPartialContent {
		t.Errorf("a part of the form: %s", resp.Status)
	}
	if resp := b.get(t, form+"image/png"); resp.StatusCode != http.StatusNotFound {
		t.Errorf("a form that there is not: %s", resp.Status)
	}
	if err := b.Control(ctx, info.ID, spool.Control{Op: spool.ControlKill}); err != nil {
		t.Fatal(err)
	}
	if _, err := spool.Attach(b, info.ID).Wait(ctx); err != nil {
		t.Fatal(err)
	}
}
