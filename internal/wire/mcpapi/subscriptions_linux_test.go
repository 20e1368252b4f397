package mcpapi_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool/internal/wire/mcpapi"
)

// TestSubscriptions has clients of both revisions listen to a run: they hear that it
// changed, and of no other run.
func TestSubscriptions(t *testing.T) {
	h := openHost(t)
	url := serveHTTP(t, h)
	for name, open := range map[string]func(*mcp.ClientOptions) *client{
		"2026-07-28":           func(o *mcp.ClientOptions) *client { return connect(t, mcpapi.Options{Backend: h}, "2026-07-28", o) },
		"2025-11-25":           func(o *mcp.ClientOptions) *client { return connect(t, mcpapi.Options{Backend: h}, "2025-11-25", o) },
		"2026-07-28 over HTTP": func(o *mcp.ClientOptions) *client { return dial(t, url, "alice", "2026-07-28", o) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
			defer cancel()
			heard := make(chan string, 100)
			c := open(&mcp.ClientOptions{ResourceUpdatedHandler: func(_ context.Context, r *mcp.ResourceUpdatedNotificationRequest) {
				heard <- r.Params.URI
			}})
			// It changes all the time, and must not be heard of all the time.
			run, _ := c.call("run_command", args{"command": "while echo hi; do sleep 0.02; done", "wait_ms": 0})
			other, _ := c.call("run_command", args{"command": "while echo hi; do sleep 0.02; done", "wait_ms": 0})
			uri := fmt.Sprintf("spool://runs/%s/output", run.Run)
			ended := make(chan error, 1)
			go func() { ended <- c.Subscribe(ctx, &mcp.SubscribeParams{URI: uri}) }()
			for range 2 {
				select {
				case got := <-heard:
					if got != uri {
						t.Errorf("heard of %q", got)
					}
				case <-ctx.Done():
					t.Fatal("hears nothing")
				}
			}
			if err := c.Unsubscribe(ctx, &mcp.UnsubscribeParams{URI: uri}); err != nil {
				t.Error(err)
			}
			select {
			case <-ended: // of the new revision, it lasts as long as the subscription
			case <-ctx.Done():
				t.Fatal("the subscription does not end")
			}
			c.call("stop_run", args{"run": run.Run, "how": "kill"})
			c.call("stop_run", args{"run": other.Run, "how": "kill"})
		})
	}
}

// TestSubscriptionsAreBounded has a client listen to what there is not, and to more than
// it may.
func TestSubscriptionsAreBounded(t *testing.T) {
	c := connect(t, mcpapi.Options{Backend: openHost(t)}, "2025-11-25", nil)
	for _, bad := range []string{"spool://runs/none-such", "file:///etc/passwd"} {
		if err := c.Subscribe(t.Context(), &mcp.SubscribeParams{URI: bad}); err == nil || !strings.Contains(strings.ToLower(err.Error()), "not found") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	run, _ := c.call("run_command", args{"argv": []string{"true"}, "wait_ms": 50000})
	for n := range mcpapi.MaxSubscriptions + 1 {
		err := c.Subscribe(t.Context(), &mcp.SubscribeParams{URI: fmt.Sprintf("spool://runs/%s/output?after=%d", run.Run, n)})
		if (err != nil) != (n == mcpapi.MaxSubscriptions) {
			t.Fatalf("subscription %d: %v", n, err)
		}
	}
}
