package mcpapi

import (
	"cmp"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/access"
)

const (
	// stateFor is how long the answer to a question may take to come back.
	stateFor = 10 * time.Minute
	// askField is the member of a form that has the answer.
	askField = "answer"
	// retypeField is the member of a form for the command that is typed again to allow
	// what is dangerous.
	retypeField = "retype"
	// askRequest is the name of the request in a result.
	askRequest = "ask"
	// firstRevision is the first revision in which a result can ask: a client of it
	// repeats its call with the answer.
	firstRevision = "2026-07-28"
)

// state is what a call that asks the user needs to go on, once the client repeats it with
// the answer. The client keeps it, sealed.
type state struct {
	Subject string      `json:"subject"`
	Tool    string      `json:"tool"`
	Run     spool.RunID `json:"run"`
	Ask     spool.Seq   `json:"ask"`
	Expires time.Time   `json:"expires"`
	next
}

// next says how a call goes on after the question of its run is answered.
type next struct {
	Turn   spool.Seq `json:"turn,omitempty"`
	After  spool.Seq `json:"after,omitempty"`
	Budget int       `json:"budget"`
	Images int       `json:"images,omitempty"`
	WaitMs int       `json:"wait_ms"`
}

// newSeal returns what seals states with a key of 32 bytes; nil means a key of this
// process.
func newSeal(key []byte) (cipher.AEAD, error) {
	if key == nil {
		key = make([]byte, 32)
		if _, err := rand.Read(key); err != nil {
			return nil, err
		}
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	return cipher.NewGCMWithRandomNonce(block)
}

// seal seals a state.
func (s *Server) seal(st *state) (string, error) {
	data, err := json.Marshal(st)
	if err != nil {
		return "", err
	}
	return base64.RawURLEncoding.EncodeToString(s.aead.Seal(nil, nil, data, nil)), nil
}

// unseal returns a state that this subject got for this tool and that is not too old.
func (s *Server) unseal(tool, text string) (*state, error) {
	refused := fmt.Errorf("%w: the request state is not one of this server, or too old; call read_run", spool.ErrInvalid)
	sealed, err := base64.RawURLEncoding.DecodeString(text)
	if err != nil || len(sealed) < s.aead.Overhead() {
		return nil, refused
	}
	data, err := s.aead.Open(nil, nil, sealed, nil)
	if err != nil {
		return nil, refused
	}
	var st state
	if err := json.Unmarshal(data, &st); err != nil || st.Subject != s.opts.Subject.Name || st.Tool != tool || time.Now().After(st.Expires) {
		return nil, refused
	}
	return &st, nil
}

// canAsk reports whether the client can put a question to its user, now.
func (c *call) canAsk() bool {
	capabilities := c.req.ClientCapabilities()
	if capabilities == nil || capabilities.Elicitation == nil || capabilities.Elicitation.Form == nil && capabilities.Elicitation.URL != nil {
		return false
	}
	if c.opts.Subject.Scopes.Require(access.Answer) != nil {
		return false
	}
	if c.req.ProtocolVersion() >= firstRevision {
		return true
	}
	// The SDK asks older clients by a request of its own, once for each call, which
	// needs a connection both ways.
	return c.req.Params.RequestState == "" && (c.req.Extra == nil || c.req.Extra.Header == nil)
}

// ask returns a result with which the client asks its user what the run asks, or nil if
// it cannot.
func (c *call) ask(v *RunView, n next) (*mcp.CallToolResult, error) {
	if len(v.Asks) == 0 || v.Why != whyAsk || !c.canAsk() {
		return nil, nil
	}
	run := spool.Attach(c.opts.Backend, v.Run)
	seq := v.Asks[0].Ask
	ask, err := readAsk(c.ctx, run, seq)
	if err != nil {
		return nil, err
	}
	form := askForm(ask)
	if form == nil {
		return nil, nil
	}
	sealed, err := c.seal(&state{Subject: c.opts.Subject.Name, Tool: c.req.Params.Name, Run: v.Run, Ask: seq, Expires: time.Now().Add(stateFor), next: n})
	if err != nil {
		return nil, err
	}
	message := fmt.Sprintf("Run %s asks: %s", v.headline(), v.Asks[0].Prompt)
	return &mcp.CallToolResult{
		InputRequests: mcp.InputRequestMap{askRequest: &mcp.ElicitParams{Mode: "form", Message: message, RequestedSchema: form}},
		RequestState:  sealed,
	}, nil
}

// askForm is the schema of the form for an answer; nil if there is none: a secret must not
// pass through a model's client.
func askForm(ask *spool.Ask) map[string]any {
	if ask.Secret || ask.Kind == spool.AskTool {
		return nil
	}
	property := func(title string, options []spool.AskOption) map[string]any {
		p := map[string]any{"type": "string"}
		if title != "" {
			p["title"] = title
		}
		var ids, names []string
		for _, o := range options {
			ids = append(ids, o.ID)
			names = append(names, cmp.Or(o.Label, o.ID))
		}
		if len(ids) > 0 {
			p["enum"], p["enumNames"] = ids, names
		}
		return p
	}
	properties := make(map[string]any)
	var required []string
	for _, q := range questions(ask) {
		if q.Secret {
			return nil
		}
		properties[q.ID] = property(q.Text, q.Options)
		required = append(required, q.ID)
	}
	if len(required) == 0 {
		properties[askField] = property("", ask.Options)
		required = []string{askField}
		if again := ask.RetypeText(); again != "" {
			properties[retypeField] = property("This is dangerous. To allow it, type it again: "+again, nil)
		}
	}
	return map[string]any{"type": "object", "properties": properties, "required": required}
}

// questions are those of an ask that has several.
func questions(ask *spool.Ask) []agent.Question {
	var q agent.Questions
	if ask.Kind != agent.AskQuestion || json.Unmarshal(ask.Data, &q) != nil {
		return nil
	}
	return q.Questions
}

// askAnswer is what the user filled in, as the answer to an ask.
func askAnswer(ask *spool.Ask, content map[string]any) (json.RawMessage, error) {
	if several := questions(ask); len(several) > 0 {
		d := agent.Decision{Choice: agent.Allow, Answers: make(map[string]string)}
		for _, q := range several {
			text, ok := content[q.ID].(string)
			if !ok {
				return nil, fmt.Errorf("%w: the form has no %q", spool.ErrInvalid, q.ID)
			}
			d.Answers[q.ID] = text
		}
		return json.Marshal(d)
	}
	text, ok := content[askField].(string)
	if !ok {
		return nil, fmt.Errorf("%w: the form has no %q", spool.ErrInvalid, askField)
	}
	if err := checkChoice(ask, text); err != nil {
		return nil, err
	}
	return json.Marshal(text)
}

// resume goes on with a call whose client asked its user.
func (c *call) resume() (*mcp.CallToolResult, error) {
	st, err := c.unseal(c.req.Params.Name, c.req.Params.RequestState)
	if err != nil {
		return nil, err
	}
	run := spool.Attach(c.opts.Backend, st.Run)
	note, err := c.answerWith(run, st)
	if err != nil {
		return nil, err
	}
	why := ""
	w, err := c.waiter(run, &Waiting{Until: whyEnd}, st.After)
	if err != nil {
		return nil, err
	}
	if note == "" {
		if w.turn = st.Turn; st.Turn != 0 {
			w.after = st.Turn
		}
		if why, err = w.wait(c.ctx, milliseconds(st.WaitMs)); err != nil {
			return nil, err
		}
	}
	v, err := c.view(run, w, why)
	if err != nil {
		return nil, err
	}
	if st.Turn != 0 {
		err = c.fillTurn(v, run, st.Turn, st.Budget, st.Images)
	} else {
		err = c.fill(v, run, viewHeadTail, st.After, v.Next, st.Budget)
	}
	if err != nil {
		return nil, err
	}
	v.note = note
	return c.finish(v, st.next)
}

// answerWith answers an ask with what the user said, and returns why it did not.
func (c *call) answerWith(run *spool.Run, st *state) (note string, err error) {
	said, ok := c.req.Params.InputResponses[askRequest].(*mcp.ElicitResult)
	if !ok {
		return "", fmt.Errorf("%w: the call has a request state and no answer %q", spool.ErrInvalid, askRequest)
	}
	if said.Action != "accept" { // not now is not no
		return "the user did not answer; the question stays open", nil
	}
	ask, err := readAsk(c.ctx, run, st.Ask)
	if err != nil {
		return "", err
	}
	data, err := askAnswer(ask, said.Content)
	if err != nil {
		return "", err
	}
	answer := spool.Answer{Ask: st.Ask, Data: data, By: c.client()}
	answer.Retype, _ = said.Content[retypeField].(string) // without it nothing dangerous is allowed
	err = run.Answer(context.WithoutCancel(c.ctx), answer, false)
	if errors.Is(err, spool.ErrNotAsked) || errors.Is(err, spool.ErrNotRetyped) || errors.Is(err, spool.ErrInputClosed) {
		return err.Error(), nil
	}
	return "", err
}
