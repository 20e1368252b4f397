package acpapi

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// Version 2 of the protocol, a draft: a prompt is answered when the run has it, what happens
// then is told by updates, and messages, tool calls and plans are told by their ids. That is
// how a log works, so that the updates of version 1 need few changes.

// initialized2 answers initialize.
func (c *client) initialized2() object {
	takes, some := takesServers[c.opts.Config.Agent]
	servers := object{}
	if some {
		servers["stdio"] = object{}
	}
	if takes.http {
		servers["http"] = object{}
	}
	prompt := object{"embeddedContext": object{}}
	if c.opts.takesImages() {
		prompt["image"] = object{}
	}
	offered := object{"prompt": prompt, "mcp": servers}
	if _, ok := c.opts.Backend.(spool.Remover); ok {
		offered["delete"] = object{}
	}
	return object{"protocolVersion": 2, "info": c.info(), "capabilities": object{"session": offered}, "authMethods": []any{}}
}

// turnState is what is known of the work in a run.
type turnState struct {
	turns int                     // that are not done
	asks  map[spool.Seq]spool.Seq // the open ones, with their turns
	told  string                  // the last state
}

// stateUpdate is a state of the session.
type stateUpdate struct {
	Update     string     `json:"sessionUpdate"`
	State      string     `json:"state"`                // running, requires_action or idle
	StopReason string     `json:"stopReason,omitempty"` // of idle
	Error      *rpc.Error `json:"error,omitempty"`      // of a turn that failed
	Meta       meta       `json:"_meta"`
}

// stateAfter is the state of the session after an event, and whether it is another one.
func (m *mapper) stateAfter(e *spool.Event) (stateUpdate, bool) {
	s := &m.state
	u := stateUpdate{Update: "state_update", Meta: m.at(e)}
	for ask, turn := range s.asks {
		if e.ClosesAsk(ask, turn) || e.Kind == spool.KindClosed {
			delete(s.asks, ask)
		}
	}
	switch {
	case e.OpensAsk():
		s.asks[e.Seq] = e.Turn
	case e.Kind == spool.KindInput:
		var in spool.Said
		if json.Unmarshal(e.Data, &in) == nil && in.Kind == spool.InputPrompt {
			s.turns++
		}
	case e.Kind == spool.KindDone:
		s.turns = max(0, s.turns-1)
		var d spool.Done
		_ = json.Unmarshal(e.Data, &d) // a malformed one has no reason
		if u.StopReason = stopReason(&d); u.StopReason == "" {
			u.StopReason = "error"
			u.Error = &rpc.Error{Code: rpc.CodeInternal, Message: failure(&d), Data: encode(object{"outcome": d.Outcome, "class": d.ErrorClass, "run": m.run, "seq": e.Seq})}
		}
	case e.Kind == spool.KindClosed && s.turns > 0: // nobody knows how they ended
		s.turns, u.StopReason = 0, "error"
		u.Error = &rpc.Error{Code: rpc.CodeInternal, Message: "The run ended before the turn was done."}
	}
	switch {
	case len(s.asks) > 0:
		u.State = "requires_action"
	case s.turns > 0:
		u.State = "running"
	case s.told == "" && u.StopReason == "": // nothing happened yet
		return u, false
	default:
		u.State = "idle"
	}
	if u.State != "idle" {
		u.StopReason, u.Error = "", nil
	}
	changed := u.State != s.told
	s.told = u.State
	return u, changed
}

// update2 is an update of version 1 in version 2.
func update2(u any) any {
	switch u := u.(type) {
	case chunkUpdate:
		return message2(&u)
	case toolUpdate:
		u.Update = "tool_call_update"
		return u
	case planUpdate:
		return object{"sessionUpdate": "plan_update", "plan": object{"type": "items", "planId": "plan", "entries": u.Entries}, "_meta": u.Meta}
	}
	return u
}

// message2 is a message, or a piece of one. What is in no log is a notice.
func message2(u *chunkUpdate) any {
	if u.MessageID == "" {
		text, severity := strings.TrimSpace(u.Content.Text), "info"
		if rest, warned := strings.CutPrefix(text, "⚠ "); warned {
			text, severity = rest, "warning"
		}
		return noticeUpdate{"notice", severity, text, u.Meta}
	}
	if !u.whole {
		return *u
	}
	return object{"sessionUpdate": strings.TrimSuffix(u.Update, "_chunk"), "messageId": u.MessageID, "content": append([]contentBlock{u.Content}, u.more...), "_meta": u.Meta}
}

// diffChange is a file that a diff changes.
type diffChange struct {
	Operation string `json:"operation"`
	Path      string `json:"path"`
}

// diffPatch is what changes in it.
type diffPatch struct {
	Format string `json:"format"`
	Text   string `json:"text"`
}

// diff2 is a change of a file.
func diff2(path string, c *agent.FileChange) toolContent {
	operation, before, after := "modify", "a"+path, "b"+path
	switch c.Kind {
	case "add":
		operation, before = "add", "/dev/null"
	case "delete":
		operation, after = "delete", "/dev/null"
	}
	t := toolContent{Type: "diff", Changes: []diffChange{{operation, path}}}
	if i := strings.Index(c.Diff, "@@"); i >= 0 {
		t.Patch = &diffPatch{"git_patch", "diff --git a" + path + " b" + path + "\n--- " + before + "\n+++ " + after + "\n" + c.Diff[i:]}
	}
	return t
}

// permission2 asks the client for a permission.
func permission2(session spool.RunID, tool *toolUpdate, options []permissionOption) object {
	return object{"sessionId": session, "title": cmp.Or(tool.Title, "The agent asks."), "options": options, "_meta": tool.Meta,
		"subject": object{"type": "tool_call", "toolCall": tool}}
}
