package mcpapi_test

import (
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/mcpapi"
)

// TestRepeatedCalls repeats calls with an id, as a client does whose connection was cut:
// each is done once, and the second result has what the first had.
func TestRepeatedCalls(t *testing.T) {
	b := openHost(t)
	c := connect(t, mcpapi.Options{Backend: b}, versions[0], nil)
	twice := func(name string, a args) (first, again mcpapi.RunView) {
		t.Helper()
		a["wait_ms"] = 50_000
		first, _ = c.call(name, a)
		again, _ = c.call(name, a)
		return first, again
	}

	v, _ := c.call("run_command", args{"command": "n=0; trap 'n=$((n+1)); echo hit $n' USR1; x=; until [ \"$x\" = end ]; do read x && echo got $x; done", "tty": true, "name": "typed", "until": "quiet", "wait_ms": 50_000})
	for _, text := range []string{"one", "two"} {
		match := "^got " + text
		first, again := twice("send_input", args{"run": "typed", "text": text + "\n", "id": text, "after": v.Next, "until": "match", "match": match})
		if !strings.Contains(first.Text, "got "+text) || !strings.Contains(again.Text, "got "+text) {
			t.Errorf("%s: it wrote %q, and repeated %q", text, first.Text, again.Text)
		}
		v = again
	}
	for range 2 {
		c.call("stop_run", args{"run": "typed", "how": "SIGUSR1", "id": "hit", "wait_ms": 0})
	}
	c.call("read_run", args{"run": "typed", "after": v.Next, "until": "match", "match": "hit", "wait_ms": 50_000})
	c.call("send_input", args{"run": "typed", "text": "end\n", "id": "three", "until": "end", "wait_ms": 50_000})
	v, _ = c.call("read_run", args{"run": "typed", "view": "head"})
	for _, line := range []string{"got one", "got two", "hit 1"} {
		if strings.Count(v.Text, line) != 1 || strings.Contains(v.Text, "hit 2") {
			t.Errorf("the run wrote %q", v.Text)
		}
	}
	if again, _ := c.call("send_input", args{"run": "typed", "text": "end\n", "id": "three", "wait_ms": 0}); again.State != spool.StateClosed {
		t.Errorf("the input that ended the run, repeated: %+v", again)
	}

	const count = "n = globals().get('n', 0) + 1\nn"
	first, again := twice("python", args{"code": count, "id": "count"})
	if strings.TrimSpace(first.Text) != "1" || again.Turn != first.Turn || again.Text != first.Text {
		t.Errorf("a cell returned %+v, and repeated %+v", first, again)
	}
	// A session that has ended knows its cells.
	c.call("stop_run", args{"run": first.Run, "wait_ms": 50_000})
	if again, _ := c.call("python", args{"code": count, "id": "count", "wait_ms": 50_000}); again.Run != first.Run || again.Turn != first.Turn || again.Text != first.Text {
		t.Errorf("the cell returned %+v, and repeated after the end %+v", first, again)
	}
	if next, _ := c.call("python", args{"code": "globals().get('n', 0)", "id": "next", "wait_ms": 50_000}); strings.TrimSpace(next.Text) != "0" || next.Run == first.Run {
		t.Errorf("the next session returned %+v", next)
	}
	result, err := c.CallTool(t.Context(), &mcp.CallToolParams{Name: "list_runs", Arguments: args{"label": "mcp.session:default"}})
	if err != nil || strings.Count(textOf(result), "\n") != 1 {
		t.Errorf("the sessions are %q, %v", textOf(result), err)
	}
}
