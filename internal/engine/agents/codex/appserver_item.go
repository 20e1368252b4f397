package codex

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
)

// threadItem is an item of the app-server, whose names differ from those of
// codex exec.
type threadItem struct {
	ID      string   `json:"id"`
	Type    string   `json:"type"`
	Text    string   `json:"text"`
	Phase   string   `json:"phase"`
	Status  string   `json:"status"`
	Summary []string `json:"summary"`

	Content json.RawMessage `json:"content"`
	Command string          `json:"command"`
	Output  string          `json:"aggregatedOutput"`
	Exit    *int            `json:"exitCode"`

	Changes []struct {
		Path string `json:"path"`
		Kind struct {
			Type string `json:"type"`
			Move string `json:"move_path"`
		} `json:"kind"`
		Diff string `json:"diff"`
	} `json:"changes"`

	Server    string          `json:"server"`
	Namespace string          `json:"namespace"`
	Tool      string          `json:"tool"`
	Arguments json.RawMessage `json:"arguments"`
	Result    json.RawMessage `json:"result"`
	Error     json.RawMessage `json:"error"`
	Success   *bool           `json:"success"`
	Items     json.RawMessage `json:"contentItems"`

	Prompt    string   `json:"prompt"`
	Receivers []string `json:"receiverThreadIds"`
	Query     string   `json:"query"`
	Path      string   `json:"path"`
	Review    string   `json:"review"`
}

func (c *appServer) item(n notification, phase agent.ActionPhase, line []byte, t *talk.Turn) {
	var i threadItem
	if talk.Decode(n.Item, &i) != nil {
		t.Unknown("item", line)
		return
	}
	done := phase == agent.ActionCompleted
	parent := c.parent(n.Thread)
	a := agent.Action{ID: i.ID, Phase: phase, Status: i.Status, Parent: parent}
	if done {
		a.OK = new(i.Status == "" || i.Status == "completed")
	}
	switch i.Type {
	case "userMessage", "hookPrompt", "functionCallOutput", "subAgentActivity":
		return // what we said ourselves, or what another item tells better
	case "agentMessage":
		switch {
		case !done:
		case parent != "":
			t.Message(agent.Message{ID: i.ID, Text: i.Text, Parent: parent})
		default:
			c.message(item{ID: i.ID, Text: i.Text, Phase: i.Phase}, t)
		}
		return
	case "reasoning":
		if done {
			text := strings.Join(i.Summary, "\n\n")
			t.Reasoning(agent.Reasoning{ID: i.ID, Text: cmp.Or(text, joined(i.Content)), Parent: parent})
		}
		return
	case "plan":
		if done {
			t.Message(agent.Message{ID: i.ID, Text: i.Text, Phase: agent.PhaseCommentary, Parent: parent})
		}
		return
	case "commandExecution":
		a.Kind, a.Title = agent.ActionCommand, talk.RelativeCommand(i.Command, c.cwd)
		a.ExitCode, a.Output = i.Exit, i.Output
		if done {
			a.OK = new(i.Status == "completed" && (i.Exit == nil || *i.Exit == 0))
		}
	case "fileChange":
		c.change(&i, &a)
	case "mcpToolCall":
		a.Kind, a.Title, a.Tool = agent.ActionMCP, i.Server+"."+i.Tool, i.Tool
		if !talk.IsNull(i.Arguments) {
			a.Input = i.Arguments
		}
		if done {
			a.OK = new(i.Status == "completed" && talk.IsNull(i.Error))
			a.Output, a.Message = mcpResult(item{Result: i.Result, Error: i.Error})
		}
	case "dynamicToolCall":
		a.Kind, a.Title, a.Tool = agent.ActionTool, i.Tool, i.Tool
		if !talk.IsNull(i.Arguments) {
			a.Input = i.Arguments
		}
		if done {
			a.OK = new(i.Success == nil || *i.Success)
			a.Output = talk.Text(i.Items)
		}
	case "collabAgentToolCall":
		a.Kind, a.Tool, a.Title = agent.ActionSubagent, i.Tool, talk.Title(cmp.Or(i.Prompt, i.Tool, "subagent"))
		for _, thread := range i.Receivers {
			c.parents[thread] = i.ID
		}
	case "webSearch":
		a.Kind, a.Title = agent.ActionWebSearch, cmp.Or(i.Query, "web search")
	case "imageView":
		a.Kind, a.Title = agent.ActionRead, talk.VerbTitle("read", talk.Relative(i.Path, c.cwd), true)
	case "imageGeneration":
		a.Kind, a.Title = agent.ActionTool, "generate image"
	case "sleep":
		a.Kind, a.Title = agent.ActionNote, "sleep"
	case "enteredReviewMode", "exitedReviewMode":
		a.Kind, a.Title = agent.ActionNote, talk.Title(cmp.Or(i.Review, i.Type))
	case "contextCompaction":
		a.Kind, a.Title = agent.ActionNote, "compact the conversation"
	default:
		t.Unknown("item "+i.Type, line)
		return
	}
	t.Action(a)
}

// change describes a change of files, and keeps it for the approval.
func (c *appServer) change(i *threadItem, a *agent.Action) {
	var kept autoCompact
	for _, ch := range i.Changes {
		f := agent.FileChange{Path: talk.Relative(ch.Path, c.cwd), Kind: ch.Kind.Type, Diff: ch.Diff}
		switch f.Kind { // of these codex gives the content
		case "add":
			f.Diff = talk.LineDiff("", ch.Diff)
		case "delete":
			f.Diff = talk.LineDiff(ch.Diff, "")
		}
		kept.paths = append(kept.paths, ch.Path)
		if ch.Kind.Move != "" {
			f.Kind = "move"
			kept.paths = append(kept.paths, ch.Kind.Move)
		}
		kept.changes = append(kept.changes, f)
	}
	a.Kind, a.Changes = agent.ActionFileChange, kept.changes
	var names []string
	for _, f := range kept.changes {
		names = append(names, f.Path)
	}
	a.Title = strings.Join(names, ", ")
	if a.Phase == agent.ActionCompleted {
		delete(c.items, i.ID)
	} else {
		c.items[i.ID] = kept
	}
}

// joined reads a list of strings.
func joined(v json.RawMessage) string {
	var l []string
	_ = talk.Decode(v, &l)
	return strings.Join(l, "\n\n")
}
