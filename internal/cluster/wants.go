package cluster

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spool-run/spool"
)

// wants is what a run needs of its node.
type wants struct {
	labels map[string]string
	engine string // empty if the node itself finds out
	memory int64  // bytes; zero if the run says nothing
}

// wantsOf returns what a run needs. An engine that none of the nodes has is not looked
// for: a node is asked, and says what is missing.
func wantsOf(spec *spool.Spec, nodes []member) wants {
	return wantsFor(spec.Labels, engineOf(spec), spec.Limits.MemoryBytes, nodes)
}

// wantsFor is wantsOf for what is known of a run that waits in the queue.
func wantsFor(labels map[string]string, engine string, memory int64, nodes []member) wants {
	w := wants{labels: make(map[string]string), memory: memory}
	for k, v := range labels {
		if want, ok := strings.CutPrefix(k, labelWant); ok {
			w.labels[want] = v
		}
	}
	if slices.ContainsFunc(nodes, func(n member) bool { return n.Engines != nil && n.hasEngine(engine) }) {
		w.engine = engine
	}
	return w
}

// engineOf returns what must be among the engines of a node: the engine of a run, or
// engine/NAME for a named agent. It is empty if the run brings a program of its own.
func engineOf(spec *spool.Spec) string {
	engine := cmp.Or(spec.Engine, spool.EngineProcess)
	var config struct {
		Agent       string   `json:"agent"`
		Program     string   `json:"program"`
		Command     []string `json:"command"`
		Interpreter string   `json:"interpreter"`
	}
	if json.Unmarshal(spec.Config, &config) != nil { // the engine says what is wrong with it
		return engine
	}
	switch {
	case config.Program != "" || config.Interpreter != "" || len(config.Command) > 0:
		return ""
	case config.Agent != "":
		return engine + "/" + config.Agent
	}
	return engine
}

// hasEngine reports whether a node has an engine, as far as it is known.
func (n *nodeRecord) hasEngine(engine string) bool {
	return engine == "" || n.Engines == nil || slices.Contains(n.Engines, engine)
}

// refusal says why a node cannot have the run; it is empty if the node can.
func (w *wants) refusal(n *member) string {
	if n.State != nodeUp {
		return "is " + string(n.State)
	}
	if n.Slots == 0 {
		return "takes no runs"
	}
	for _, k := range slices.Sorted(maps.Keys(w.labels)) {
		if n.Labels[k] != w.labels[k] {
			return fmt.Sprintf("has no label %s=%s", k, w.labels[k])
		}
	}
	if !n.hasEngine(w.engine) {
		return "does not have " + w.engine
	}
	if n.Memory > 0 && w.memory > n.Memory {
		return fmt.Sprintf("has %d MiB of memory and not %d", n.Memory>>20, w.memory>>20)
	}
	return ""
}

// cmpRoom orders nodes that have the memory of the run free before those that do not.
func (w *wants) cmpRoom(a, b *member) int {
	room := func(n *member) int {
		if n.Memory > 0 && w.memory > n.Free {
			return 1
		}
		return 0
	}
	return room(a) - room(b)
}
