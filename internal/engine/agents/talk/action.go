package talk

import (
	"fmt"
	"time"

	"github.com/spool-run/spool/agent"
)

// Action tells of an action under the agent's own id. Ids that an agent uses
// again in a later turn are made unique; a second start becomes an update, and
// an end fills in what the start has said.
func (t *Turn) Action(a agent.Action) {
	key := a.ID
	begun, known := t.open[key]
	if known {
		a.ID = begun.ID
		inherit(&a, begun)
		if a.Phase == agent.ActionStarted {
			a.Phase = agent.ActionUpdated
		}
	} else {
		a.ID = t.unique(key)
		if a.Phase == agent.ActionUpdated {
			a.Phase = agent.ActionStarted
		}
	}
	if a.Kind == "" {
		a.Kind = agent.ActionOther
	}
	switch {
	case a.Phase != agent.ActionCompleted:
		if !known {
			t.order = append(t.order, key)
			t.since[key] = time.Now()
		}
		kept := a
		if kept.Input == nil {
			kept.Input = begun.Input
		}
		kept.Output, kept.OutputBlob, kept.Message = "", nil, ""
		t.open[key] = kept
	case known:
		if a.DurationMs == 0 {
			a.DurationMs = time.Since(t.since[key]).Milliseconds()
		}
		t.forget(key)
	}
	a.Output, a.OutputBlob = t.fit(a.Output)
	t.fitInput(&a)
	t.Put(agent.KindAction, a, nil)
}

// inherit fills in what an update left out.
func inherit(a *agent.Action, from agent.Action) {
	if a.Kind == "" || a.Kind == agent.ActionOther {
		a.Kind = from.Kind
	}
	if a.Title == "" {
		a.Title = from.Title
	}
	if a.Tool == "" {
		a.Tool = from.Tool
	}
	if a.Input == nil && a.Phase == agent.ActionCompleted {
		a.Input = from.Input
	}
	if a.Changes == nil {
		a.Changes = from.Changes
	}
	if a.Parent == "" {
		a.Parent = from.Parent
	}
}

// RunningAction is the action of that id that started and did not end.
func (t *Turn) RunningAction(id string) agent.Action { return t.open[id] }

// Running reports whether an action of that id started and did not end.
func (t *Turn) Running(id string) bool { _, ok := t.open[id]; return ok }

func (t *Turn) unique(id string) string {
	if id == "" {
		t.Run.notes++
		id = fmt.Sprintf("%s.%d", t.Run.Agent, t.Run.notes)
	}
	if t.Run.actions == nil {
		t.Run.actions = make(map[string]int)
	}
	n := t.Run.actions[id]
	t.Run.actions[id] = n + 1
	if n == 0 {
		return id
	}
	return t.unique(fmt.Sprintf("%s#%d", id, n+1))
}

func (t *Turn) forget(key string) {
	delete(t.open, key)
	delete(t.since, key)
	for i, k := range t.order {
		if k == key {
			t.order = append(t.order[:i], t.order[i+1:]...)
			return
		}
	}
}

// Acting reports whether an action runs.
func (t *Turn) Acting() bool {
	for _, a := range t.open {
		if a.Kind != agent.ActionTurn {
			return true
		}
	}
	return false
}

// CloseActions ends what the agent did not end itself.
func (t *Turn) CloseActions(message string) {
	for len(t.order) > 0 {
		a := t.open[t.order[0]]
		t.Action(agent.Action{ID: t.order[0], Kind: a.Kind, Phase: agent.ActionCompleted, Title: a.Title,
			OK: new(false), Synthetic: true, Message: message})
	}
}
