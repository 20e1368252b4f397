package httpapi_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/httpapi"
	"github.com/spool-run/spool/python"
)

// TestWatchAsks has a run ask something, and checks that a watcher and a client that
// waits for a change of the asks learn of it, and of the answer.
func TestWatchAsks(t *testing.T) {
	b := serve(t, httpapi.Options{Backend: openKernels(t), Limits: httpapi.Limits{Heartbeat: 50 * time.Millisecond}})
	ctx := t.Context()
	info, err := b.Start(ctx, spool.Spec{Name: "asker", Engine: python.EngineKernel, Cwd: "/", Config: json.RawMessage(`{"input":"ask"}`)})
	if err != nil {
		t.Fatal(err)
	}
	asks := func(query string) (list httpapi.AskList) {
		t.Helper()
		if err := b.call(ctx, "GET", "/v1/asks"+query, nil, nil, &list); err != nil {
			t.Fatal(err)
		}
		return list
	}
	empty := asks("")
	if len(empty.Asks) != 0 || empty.Version == "" {
		t.Fatalf("at first there is %+v", empty)
	}
	watched := b.follow(t, "/v1/watch?live=1")
	var sync bool
	watched.until(t, func(f frame) bool {
		sync = sync || f.event == "sync"
		return f.event == "asks" && sync
	})
	watched.until(t, func(f frame) bool { return f.comment != "" }) // it is never silent
	if err := b.call(ctx, "POST", "/v1/runs/"+string(info.ID)+"/turns", nil, httpapi.TurnRequest{Cell: &spool.Cell{Code: "name = input('who? ')"}}, nil); err != nil {
		t.Fatal(err)
	}
	open := asks("?wait_ms=50000&since=" + empty.Version)
	if len(open.Asks) != 1 || open.Asks[0].Run != info.ID || open.Asks[0].Name != "asker" || open.Asks[0].Ask.Prompt != "who? " || open.Version == empty.Version {
		t.Fatalf("the open asks are %+v", open)
	}
	for query, want := range map[string]int{"?kind=input": 1, "?kind=tool": 0, "?run=" + string(info.ID): 1, "?run=other": 0, "?wait_ms=1&since=" + open.Version: 1} {
		if list := asks(query); len(list.Asks) != want {
			t.Errorf("%s has %+v", query, list)
		}
	}
	var list httpapi.AskList
	f := watched.until(t, func(f frame) bool { return f.event == "asks" && strings.Contains(f.data, "who?") })
	if err := json.Unmarshal([]byte(f.data), &list); err != nil || list.Version != open.Version || f.id != "" {
		t.Errorf("the watcher got %+v, %v", f, err)
	}
	answer := fmt.Sprintf("/v1/runs/%s/asks/%d", info.ID, open.Asks[0].Seq)
	if err := b.call(ctx, "POST", answer, nil, httpapi.AnswerRequest{Data: json.RawMessage(`"me"`)}, nil); err != nil {
		t.Fatal(err)
	}
	if list := asks("?wait_ms=50000&since=" + open.Version); len(list.Asks) != 0 || list.Version != empty.Version {
		t.Errorf("after the answer there is %+v", list)
	}
	watched.until(t, func(f frame) bool { return f.event == "asks" && strings.Contains(f.data, `"asks":[]`) })
}

// TestWatchersAreBounded checks the number of watchers, and that they end with the
// server.
func TestWatchersAreBounded(t *testing.T) {
	b, api := serveAPI(t, httpapi.Options{Backend: openHost(t), Limits: httpapi.Limits{Watchers: 1}})
	first := b.follow(t, "/v1/watch")
	first.until(t, func(f frame) bool { return f.event == "sync" })
	if resp := b.get(t, "/v1/watch", "Accept", "text/event-stream"); resp.StatusCode != http.StatusTooManyRequests {
		t.Errorf("a second watcher gets %s", resp.Status)
	}
	go api.Close(time.Minute)
	first.until(t, func(f frame) bool { return f.event == "end" && strings.Contains(f.data, "shutdown") })
}
