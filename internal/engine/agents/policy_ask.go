package agents

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// clientVersion is what agents are told about us.
const clientVersion = "1"

// Questions are the data of an ask of kind [spool.AskQuestion]: what an agent
// wants to know. The answers are given by the question's id in
// [agent.Decision.Answers]; the choice alone answers a single one.
type Questions struct {
	Action    string     `json:"action,omitempty"` // the id of the action that waits
	Questions []Question `json:"questions"`
	// Schema describes the form that is asked for, where it is one.
	Schema json.RawMessage `json:"schema,omitempty"`
}

// Question is one of them.
type Question struct {
	ID       string            `json:"id"`
	Header   string            `json:"header,omitempty"`
	Text     string            `json:"text"`
	Options  []spool.AskOption `json:"options,omitempty"`
	Multiple bool              `json:"multiple,omitempty"`
	Secret   bool              `json:"secret,omitempty"`
}

// The kinds of an option of an approval.
const (
	allowOnce    = "allow_once"
	allowAlways  = "allow_always"
	rejectOnce   = "reject_once"
	rejectAlways = "reject_always"
)

// approvalAsk makes an ask of an approval.
func approvalAsk(a Approval, title string, options []spool.AskOption) spool.Ask {
	data, err := json.Marshal(a)
	if err != nil { // its input is no JSON: a policy then has nothing to judge
		a.Input = nil
		data, _ = json.Marshal(a)
	}
	return spool.Ask{Kind: spool.AskApproval, Name: string(a.Kind), Prompt: title, Data: data, Options: options}
}

// questionAsk makes an ask of questions.
func questionAsk(q Questions, prompt string) spool.Ask {
	a := spool.Ask{Kind: spool.AskQuestion, Prompt: prompt}
	for _, one := range q.Questions {
		a.Secret = a.Secret || one.Secret
	}
	if len(q.Questions) == 1 {
		a.Name = q.Questions[0].Header
		a.Options = q.Questions[0].Options
		a.Prompt = first(prompt, q.Questions[0].Text)
	}
	if a.Prompt == "" && len(q.Questions) > 0 {
		var texts []string
		for _, one := range q.Questions {
			texts = append(texts, one.Text)
		}
		a.Prompt = strings.Join(texts, "\n")
	}
	data, err := json.Marshal(q)
	if err != nil {
		q.Schema = nil
		data, _ = json.Marshal(q)
	}
	a.Data = data
	return a
}

// declined reports whether the decision is not to answer.
func declined(d agent.Decision) bool {
	return len(d.Answers) == 0 && (d.Choice == agent.Deny || d.Choice == agent.DenyStop || d.Choice == "")
}

// answersTo returns the answer to each question: by its id, or the choice if
// there is but one. An option that is chosen by its id is given by its label,
// which is what the agent has asked with.
func answersTo(questions []Question, d agent.Decision) map[string]string {
	out := make(map[string]string)
	for _, q := range questions {
		a, ok := d.Answers[q.ID]
		if !ok && len(questions) == 1 {
			a, ok = d.Choice, true
		}
		if !ok {
			continue
		}
		for _, o := range q.Options {
			if o.ID == a && o.Label != "" {
				a = o.Label
			}
		}
		out[q.ID] = a
	}
	return out
}

// choose finds the option that a decision means: the one it names, or for our
// own words the first of the kinds that come closest. It reports false if
// there is none.
func choose(options []spool.AskOption, d agent.Decision) (spool.AskOption, bool) {
	if i := slices.IndexFunc(options, func(o spool.AskOption) bool { return o.ID == d.Choice }); i >= 0 {
		return options[i], true
	}
	var kinds []string
	switch d.Choice {
	case agent.Allow:
		kinds = []string{allowOnce}
	case agent.AllowSession:
		kinds = []string{allowAlways, allowOnce}
	case agent.Deny, agent.DenyStop:
		kinds = []string{rejectOnce, rejectAlways}
	}
	for _, kind := range kinds {
		if i := slices.IndexFunc(options, func(o spool.AskOption) bool { return o.Kind == kind }); i >= 0 {
			return options[i], true
		}
	}
	return spool.AskOption{}, false
}

// understood replaces a choice that is neither an option nor one of our words
// by a denial, and says so: an agent must not wait for ever because somebody
// mistyped, nor do what nobody has chosen.
func understood(options []spool.AskOption, d agent.Decision, t *turn) agent.Decision {
	switch d.Choice {
	case agent.Allow, agent.AllowSession, agent.Deny, agent.DenyStop:
		return d
	}
	if _, ok := choose(options, d); ok {
		return d
	}
	t.notice("warning", NoticeDenied, "the answer "+printable(d.Choice)+" is none of the options, and counts as a denial")
	return agent.Decision{Choice: agent.Deny, Message: d.Message}
}
