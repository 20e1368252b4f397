package execserver_test

import (
	"encoding/json"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/wire/execserver"
	"github.com/spool-run/spool/internal/wire/runproto"
)

func startFollow(t *testing.T, spec spool.Spec, follow uint32, ahead int64) runproto.StartFollowParams {
	t.Helper()
	encoded, err := json.Marshal(spec)
	if err != nil {
		t.Fatal(err)
	}
	return runproto.StartFollowParams{Spec: encoded, Follow: follow, Ahead: ahead}
}

// After the answer to run/start_follow the events of the run come, but only a few
// until the client asks for more.
func TestStartFollow(t *testing.T) {
	const ahead = 50_000
	url, _ := newServer(t, execserver.Options{})
	c := dialRuns(t, url, runproto.Subprotocol)
	var info spool.Info
	c.must("run/start_follow", startFollow(t, script("head -c 1000000 /dev/zero"), 3, ahead), &info)
	var seq spool.Seq
	total, got, acked := 0, 0, false
	for {
		_, b, m := c.next()
		if m.Method == "run/end" {
			break
		}
		largest := 0
		for rest := b[runproto.BinaryHeader:]; len(rest) > 0; {
			e, n, err := record.Decode(rest)
			if err != nil {
				t.Fatal(err)
			}
			if e.Seq != seq+1 {
				t.Fatalf("event %d after %d", e.Seq, seq)
			}
			seq, rest = e.Seq, rest[n:]
			total += len(e.Bytes)
			got, largest = got+n, max(largest, n)
		}
		if !acked && got >= ahead+largest {
			t.Fatalf("%d bytes came ahead", got)
		}
		if !acked && got >= ahead {
			c.must("run/stat", runproto.RunParams{Run: info.ID}, nil) // nothing comes before its answer
			c.notify("run/ack", runproto.AckParams{Follow: 3, Bytes: 1 << 40})
			acked = true
		}
	}
	if total != 1_000_000 || !acked {
		t.Errorf("%d bytes came; acknowledged: %v", total, acked)
	}
}

// With closed_ends the closed event is the last message of a follow, and its number
// can be used again.
func TestStartFollowClosedEnds(t *testing.T) {
	url, _ := newServer(t, execserver.Options{})
	c := dialRuns(t, url, runproto.Subprotocol)
	for range 3 {
		params := startFollow(t, script("echo hi; exit 3"), 1, 0)
		params.ClosedEnds = true
		var info spool.Info
		c.must("run/start_follow", params, &info)
		var last spool.Seq
		for closed := false; !closed; {
			_, b, m := c.next()
			if m.Method != "" {
				t.Fatalf("%s came before the closed event", m.Method)
			}
			var err error
			if last, closed, err = record.Last(b[runproto.BinaryHeader:], last); err != nil {
				t.Fatal(err)
			}
		}
		c.must("run/stat", runproto.RunParams{Run: info.ID}, nil) // nothing comes before its answer
		c.notify("run/unfollow", runproto.UnfollowParams{Follow: 1})
	}
}

// A start that is refused leaves no follow, and a follow that is refused no run.
func TestStartFollowIsRefused(t *testing.T) {
	url, h := newServer(t, execserver.Options{})
	c := dialRuns(t, url, runproto.Subprotocol)
	params := startFollow(t, spool.Spec{Argv: []string{"/no/such/program"}}, 1, 0)
	for range 2 {
		if err := c.call("run/start_follow", params, nil); err == nil || code(err) == -32600 {
			t.Fatalf("a program that does not exist: %v", err)
		}
	}
	params.Spec = json.RawMessage(`{"argvv":[]}`)
	if err := c.call("run/start_follow", params, nil); code(err) != -32602 {
		t.Errorf("a spec with an unknown key: %v", err)
	}
	spec := script("read x")
	spec.Stdin = true
	c.must("run/start_follow", startFollow(t, spec, 1, 0), nil)
	spec.ID = "second"
	if err := c.call("run/start_follow", startFollow(t, spec, 1, 0), nil); code(err) != -32600 {
		t.Errorf("a follow that exists: %v", err)
	}
	if _, err := h.Stat(t.Context(), "second"); err == nil {
		t.Error("the run of the refused follow was started")
	}
}
