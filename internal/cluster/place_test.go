package cluster

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spool-run/spool"
)

// TestPlacement checks which nodes a run is offered to, and what is said if there is
// none.
func TestPlacement(t *testing.T) {
	const gib = 1 << 30
	node := func(name string, state nodeState, memory, free int64, engines ...string) member {
		return member{nodeRecord: nodeRecord{Name: name, State: state, Slots: 4, Memory: memory, Free: free, Engines: engines, Labels: map[string]string{"at": name}}}
	}
	nodes := []member{
		node("big", nodeUp, 64*gib, 2*gib, "process", "kernel"),
		node("coder", nodeUp, 8*gib, 8*gib, "process", "agent", "agent/codex"),
		node("away", nodeDraining, 8*gib, 8*gib, "process", "sandbox"),
		node("old", nodeUp, 0, 0), // says nothing of engines and memory
	}
	spec := func(engine, config string, memory int64, labels ...string) spool.Spec {
		s := spool.Spec{Engine: engine, Config: json.RawMessage(config), Limits: spool.Limits{MemoryBytes: memory}, Labels: make(map[string]string)}
		for _, l := range labels {
			k, v, _ := strings.Cut(l, "=")
			s.Labels[k] = v
		}
		return s
	}
	for _, tt := range []struct {
		what string
		spec spool.Spec
		want string // the nodes, in the order of their names; or what the error says
	}{
		{"any", spec("", "", 0), "big coder old"},
		{"kernel", spec("kernel", "{}", 0), "big old"},
		{"kernel with a Python of its own", spec("kernel", `{"interpreter":"/opt/python"}`, 0), "big coder old"},
		{"agent", spec("agent", `{"agent":"codex"}`, 0), "coder old"},
		{"agent that no node has: one says why", spec("agent", `{"agent":"claude"}`, 0), "big coder old"},
		{"agent with a program of its own", spec("agent", `{"agent":"claude","program":"/opt/claude"}`, 0), "big coder old"},
		{"engine that there is not", spec("toaster", "", 0), "big coder old"},
		{"memory", spec("", "", 16*gib), "big old"},
		{"label", spec("", "", 0, "place.want.at=old"), "old"},
		{"kernel at coder", spec("kernel", "", 0, "place.want.at=coder"), "coder does not have kernel"},
		{"much memory at coder", spec("", "", 16*gib, "place.want.at=coder"), "coder has 8192 MiB of memory and not 16384"},
		{"sandbox at away", spec("sandbox", "", 0, "place.want.at=away"), "away is draining"},
		{"label that no node has", spec("", "", 0, "place.want.gpu=a100"), "old has no label gpu=a100"},
	} {
		r := &Router{self: "old"}
		names, err := r.offer(nodes, &tt.spec, "")
		slices.Sort(names)
		if got := strings.Join(names, " "); err == nil && got != tt.want {
			t.Errorf("%s: offered to %q, want %q", tt.what, got, tt.want)
		}
		var refused *spool.StartError
		if err != nil && (!errors.Is(err, spool.ErrUnsupported) || !errors.As(err, &refused) || refused.Hint == "" || !strings.Contains(err.Error(), tt.want)) {
			t.Errorf("%s: %v, want %q", tt.what, err, tt.want)
		}
	}
	// A node with the memory free comes first.
	s := spec("", "", 4*gib)
	if names, err := (&Router{}).offer(nodes[:2], &s, ""); err != nil || names[0] != "coder" {
		t.Errorf("a run with much memory is offered to %v, %v", names, err)
	}
}
