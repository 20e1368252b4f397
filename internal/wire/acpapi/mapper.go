package acpapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// mapper makes updates of the events of the runs of a session, in order. What it makes
// depends on the events alone, so that a session that is loaded looks as it did live.
type mapper struct {
	notices bool // the client shows notices
	version int  // of the protocol
	// image reads an image of a prompt.
	image func(*spool.PromptImage) ([]byte, error)

	run    spool.RunID
	number int // of the run in its session, from 1 on
	cwd    string
	titled bool
	calls  map[string]bool // tool calls that the client knows
	pieces map[piece]*said
	state  turnState
}

// piece names what an agent says in pieces.
type piece struct {
	kind   spool.Kind
	parent string // the action of the subagent that says it
	id     string
}

// said is what was said of it.
type said struct {
	id   string // of the message, for the client
	text strings.Builder
}

// begin goes on with another run.
func (m *mapper) begin(run spool.RunID, number int, cwd string) {
	m.run, m.number, m.cwd = run, number, cwd
	m.calls, m.pieces = make(map[string]bool), make(map[piece]*said)
	m.state = turnState{asks: make(map[spool.Seq]spool.Seq)}
}

// unique makes a name that is unique in a run unique in its session.
func (m *mapper) unique(id string) string {
	return unique(m.number, id)
}

func unique(run int, id string) string {
	if run <= 1 {
		return id
	}
	return fmt.Sprintf("r%d-%s", run, id)
}

// messageID is the name of the message that an event begins, in a run of a session.
func messageID(run int, seq spool.Seq) string { return unique(run, fmt.Sprintf("m%d", seq)) }

// at is the place of an event.
func (m *mapper) at(e *spool.Event) meta {
	return meta{place{Run: string(m.run), Seq: uint64(e.Seq)}}
}

// updates returns what a client is told about an event. live is false if the event was in
// the log when the client came, and own reports whether a prompt is one of this client,
// which shows it itself.
func (m *mapper) updates(e *spool.Event, live bool, own func(id string) bool) []any {
	out := m.content(e, live, own)
	if m.version == 2 {
		if u, changed := m.stateAfter(e); changed {
			out = append(out, u)
		}
	}
	return out
}

// content returns what an event tells, without what it changes about the state of the session.
func (m *mapper) content(e *spool.Event, live bool, own func(id string) bool) []any {
	switch e.Kind {
	case spool.KindInput:
		return m.input(e, live, own)
	case agent.KindMessage:
		var msg agent.Message
		if json.Unmarshal(e.Data, &msg) != nil || m.repeats(msg.History) {
			return nil
		}
		text := msg.Text + rest(msg.Blob, len(msg.Text))
		switch {
		case msg.Role == "user":
			return m.chunk(e, "user_message_chunk", "", text)
		case msg.Parent != "": // the agent's own words are the answer
			return m.say(e, "agent_thought_chunk", msg.Parent, msg.ID, text, msg.Delta)
		}
		return m.say(e, "agent_message_chunk", msg.Parent, msg.ID, text, msg.Delta)
	case agent.KindReasoning:
		var r agent.Reasoning
		if json.Unmarshal(e.Data, &r) != nil || m.repeats(r.History) {
			return nil
		}
		return m.say(e, "agent_thought_chunk", r.Parent, r.ID, r.Text+rest(r.Blob, len(r.Text)), r.Delta)
	case agent.KindAction:
		var a agent.Action
		if json.Unmarshal(e.Data, &a) != nil || m.repeats(a.History) || a.Kind == agent.ActionTurn {
			return nil
		}
		return []any{m.action(e, &a)}
	case agent.KindPlan:
		var p agent.Plan
		if json.Unmarshal(e.Data, &p) != nil || m.repeats(p.History) {
			return nil
		}
		return []any{planOf(&p, m.at(e))}
	case agent.KindUsage:
		return m.usage(e)
	case agent.KindRetry:
		var r agent.Retry
		if json.Unmarshal(e.Data, &r) != nil {
			return nil
		}
		return m.warn(e, "warning", live, retryText(&r))
	case spool.KindNotice:
		var n spool.Notice
		if json.Unmarshal(e.Data, &n) != nil || n.Level != "warning" && n.Level != "error" {
			return nil
		}
		return m.warn(e, n.Level, live, n.Text)
	case spool.KindTruncated:
		var t spool.Truncation
		if json.Unmarshal(e.Data, &t) != nil || t.To == 0 {
			return nil
		}
		return m.warn(e, "warning", live, fmt.Sprintf("The log no longer has the events %d to %d.", t.From, t.To))
	case spool.KindDone:
		return m.done(e, live, own)
	}
	return nil
}

// repeats reports whether something from before its run was told already: by the run
// before it.
func (m *mapper) repeats(history bool) bool { return history && m.number > 1 }

// input tells of a prompt.
func (m *mapper) input(e *spool.Event, live bool, own func(string) bool) []any {
	var in spool.Said
	var p spool.Prompt
	if json.Unmarshal(e.Data, &in) != nil || in.Kind != spool.InputPrompt || json.Unmarshal(in.Data, &p) != nil {
		return nil
	}
	var out []any
	if m.version == 2 || !live || !own(in.ID) {
		out = m.prompt(e, &p)
	}
	if !m.titled && m.number <= 1 {
		out = append(out, infoUpdate{"session_info_update", title(p.Text), e.Time.UTC().Format(time.RFC3339Nano), m.at(e)})
	}
	m.titled = true
	return out
}

// prompt tells what a user said and showed.
func (m *mapper) prompt(e *spool.Event, p *spool.Prompt) []any {
	var blocks []contentBlock
	if p.Text != "" {
		blocks = append(blocks, textBlock(p.Text))
	}
	for i := range p.Images {
		image := &p.Images[i]
		data, err := m.image(image)
		if err != nil {
			blocks = append(blocks, textBlock(fmt.Sprintf("[%s of %d bytes, which cannot be read]", image.MIME, image.Size)))
			continue
		}
		blocks = append(blocks, contentBlock{Type: "image", MIME: image.MIME, Data: data})
	}
	if len(blocks) == 0 {
		return nil
	}
	whole := chunkUpdate{Update: "user_message_chunk", MessageID: messageID(m.number, e.Seq), Meta: m.at(e), whole: true}
	if m.version == 2 {
		whole.Content, whole.more = blocks[0], blocks[1:]
		return []any{whole}
	}
	var out []any
	for _, b := range blocks {
		whole.Content = b
		out = append(out, whole)
	}
	return out
}

// maxTitle is how many characters of a prompt are the title of its session.
const maxTitle = 80

// title is the first line of a prompt.
func title(text string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(text), "\n")
	if r := []rune(strings.TrimSpace(line)); len(r) > maxTitle {
		return string(r[:maxTitle-1]) + "…"
	}
	return strings.TrimSpace(line)
}

// chunk is a piece of the message with an id, or without one a whole message.
func (m *mapper) chunk(e *spool.Event, update, id, text string) []any {
	if text == "" {
		return nil
	}
	whole := id == ""
	if whole {
		id = messageID(m.number, e.Seq)
	}
	return []any{chunkUpdate{Update: update, Content: textBlock(text), MessageID: id, Meta: m.at(e), whole: whole}}
}

// say tells what an agent says. The whole of what came in pieces is not told again.
func (m *mapper) say(e *spool.Event, update, parent, id, text string, delta bool) []any {
	key := piece{e.Kind, parent, id}
	s := m.pieces[key]
	if !delta {
		if s == nil { // some name a message only as a whole
			key.id = ""
			s = m.pieces[key]
		}
		if s == nil {
			return m.chunk(e, update, "", text)
		}
		told := s.text.String()
		switch {
		case strings.TrimSpace(told) == strings.TrimSpace(text):
			delete(m.pieces, key)
			return nil
		case strings.HasPrefix(told, text): // what follows is of the next one
			s.text.Reset()
			s.text.WriteString(told[len(text):])
			return nil
		case strings.HasPrefix(text, told):
			delete(m.pieces, key)
			return m.chunk(e, update, s.id, text[len(told):])
		}
		delete(m.pieces, key)
		return m.chunk(e, update, "", text)
	}
	if s == nil {
		s = &said{id: messageID(m.number, e.Seq)}
		m.pieces[key] = s
	}
	s.text.WriteString(text)
	return m.chunk(e, update, s.id, text)
}

// rest says how much of a text is not in the log itself.
func rest(b *spool.Blob, shown int) string {
	if b == nil || b.Size <= int64(shown) {
		return ""
	}
	return fmt.Sprintf("\n… %d more bytes", b.Size-int64(shown))
}

// warn tells the user about something that is not right.
func (m *mapper) warn(e *spool.Event, severity string, live bool, text string) []any {
	if strings.TrimSpace(text) == "" {
		return nil
	}
	if m.notices {
		if !live {
			return nil // notices are no history
		}
		return []any{noticeUpdate{"notice", severity, text, m.at(e)}}
	}
	return m.chunk(e, "agent_thought_chunk", "", "⚠ "+text+"\n")
}

func retryText(r *agent.Retry) string {
	text := fmt.Sprintf("The request to the model failed and is made again (%d", r.Attempt)
	if r.Max > 0 {
		text += fmt.Sprintf(" of %d", r.Max)
	}
	text += ")"
	if why := cmp.Or(r.Reason, r.Class); why != "" {
		text += ": " + why
	}
	return text
}

func planOf(p *agent.Plan, at meta) planUpdate {
	out := planUpdate{Update: "plan", Entries: []planEntry{}, Meta: at}
	for _, item := range p.Items {
		entry := planEntry{item.Text, "medium", item.Status}
		switch item.Status {
		case "pending", "in_progress", "completed":
		default:
			entry.Status = "pending"
		}
		out.Entries = append(out.Entries, entry)
	}
	return out
}

// usage tells how full the window of the model is, if that is known.
func (m *mapper) usage(e *spool.Event) []any {
	var u agent.Usage
	if json.Unmarshal(e.Data, &u) != nil || u.ContextSize <= 0 || u.ContextUsed <= 0 {
		return nil
	}
	out := usageUpdate{Update: "usage_update", Used: u.ContextUsed, Size: u.ContextSize, Meta: m.at(e)}
	for _, spent := range []*agent.Spend{u.Session, u.Run} {
		if spent != nil && spent.CostUSD > 0 {
			out.Cost = &cost{spent.CostUSD, "USD"}
			break
		}
	}
	return []any{out}
}

// done tells of a turn that failed, unless the client hears of it as the answer to its
// prompt.
func (m *mapper) done(e *spool.Event, live bool, own func(string) bool) []any {
	clear(m.pieces)
	var d spool.Done
	if json.Unmarshal(e.Data, &d) != nil || stopReason(&d) != "" || m.version == 2 || live && own(d.ID) {
		return nil
	}
	return m.warn(e, "error", live, failure(&d))
}

// failure is why a turn failed, for a person.
func failure(d *spool.Done) string {
	text := fmt.Sprintf("The turn ended: %s", d.Outcome)
	if d.Error != "" {
		text += ": " + d.Error
	}
	return text
}
