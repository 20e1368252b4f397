package talk

import (
	"cmp"
	"encoding/json"
	"slices"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// ClientVersion is the version of Spool that agents see.
const ClientVersion = "1"

// The kinds of an option of an approval.
const (
	AllowOnce    = "allow_once"
	AllowAlways  = "allow_always"
	RejectOnce   = "reject_once"
	RejectAlways = "reject_always"
)

// ApprovalAsk makes an ask of an approval.
func ApprovalAsk(a agent.Approval, title string, options []spool.AskOption) spool.Ask {
	data, err := json.Marshal(a)
	if err != nil { // its input is no JSON: a policy then has nothing to judge
		a.Input = nil
		data, _ = json.Marshal(a)
	}
	return spool.Ask{Kind: agent.AskApproval, Name: string(a.Kind), Prompt: title, Data: data, Options: options}
}

// QuestionAsk makes an ask of questions.
func QuestionAsk(q agent.Questions, prompt string) spool.Ask {
	a := spool.Ask{Kind: agent.AskQuestion, Prompt: prompt}
	for _, one := range q.Questions {
		a.Secret = a.Secret || one.Secret
	}
	if len(q.Questions) == 1 {
		a.Name = q.Questions[0].Header
		a.Options = q.Questions[0].Options
		a.Prompt = cmp.Or(prompt, q.Questions[0].Text)
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

// Declined reports whether the decision is not to answer.
func Declined(d agent.Decision) bool {
	return len(d.Answers) == 0 && (d.Choice == agent.Deny || d.Choice == agent.DenyStop || d.Choice == "")
}

// Answers returns the answer to each question: by its id, or the choice if
// there is but one. An option that is chosen by its id is given by its label,
// which is what the agent has asked with.
func Answers(questions []agent.Question, d agent.Decision) map[string]string {
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

// Choose finds the option that a decision means: the one it names, or for our
// own words the first of the kinds that come closest. It reports false if
// there is none.
func Choose(options []spool.AskOption, d agent.Decision) (spool.AskOption, bool) {
	if i := slices.IndexFunc(options, func(o spool.AskOption) bool { return o.ID == d.Choice }); i >= 0 {
		return options[i], true
	}
	var kinds []string
	switch d.Choice {
	case agent.Allow:
		kinds = []string{AllowOnce}
	case agent.AllowSession:
		kinds = []string{AllowAlways, AllowOnce}
	case agent.Deny, agent.DenyStop:
		kinds = []string{RejectOnce, RejectAlways}
	}
	for _, kind := range kinds {
		if i := slices.IndexFunc(options, func(o spool.AskOption) bool { return o.Kind == kind }); i >= 0 {
			return options[i], true
		}
	}
	return spool.AskOption{}, false
}

// Understood replaces a choice that is neither an option nor one of our words
// by a denial, and says so: an agent must not wait for ever because of a
// mistyped answer, nor do what was not chosen.
func Understood(options []spool.AskOption, d agent.Decision, t *Turn) agent.Decision {
	switch d.Choice {
	case agent.Allow, agent.AllowSession, agent.Deny, agent.DenyStop:
		return d
	}
	if _, ok := Choose(options, d); ok {
		return d
	}
	t.Notice("warning", NoticeDenied, "the answer "+Title(d.Choice)+" is not an option and counts as a denial")
	return agent.Decision{Choice: agent.Deny, Message: d.Message}
}

// FormAnswer answers the form of a tool server.
func FormAnswer(d agent.Decision) map[string]any {
	if Declined(d) {
		action := "decline"
		if d.Choice == agent.DenyStop {
			action = "cancel"
		}
		return map[string]any{"action": action, "content": nil, "_meta": nil}
	}
	var content any = map[string]string{}
	switch {
	case len(d.Answers) > 0:
		content = d.Answers
	case len(d.Input) > 0:
		content = d.Input
	case d.Choice != agent.Allow:
		content = map[string]string{"answer": d.Choice}
	}
	return map[string]any{"action": "accept", "content": content, "_meta": nil}
}
