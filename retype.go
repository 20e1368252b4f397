package spool

import (
	"encoding/json"
	"errors"
	"strings"
)

// ErrNotRetyped says that an answer allows what its [Ask] calls dangerous, and that
// [Answer.Retype] is not what is allowed.
var ErrNotRetyped = errors.New("it is dangerous, and allowed only with its text typed again")

// RetypeText is what [Answer.Retype] must be to allow what is asked: the command in the
// data, or the name of the ask. It is empty if nothing has to be typed again.
func (a *Ask) RetypeText() string {
	if !a.Retype {
		return ""
	}
	var data struct {
		Command string `json:"command"`
	}
	_ = json.Unmarshal(a.Data, &data) // data of another form have no command
	if text := strings.TrimSpace(data.Command); text != "" {
		return text
	}
	return strings.TrimSpace(a.Name)
}

// CheckRetype returns [ErrNotRetyped] for an answer that does not refuse what is asked and
// lacks what must be typed again. White space is not compared: a field of a page has one
// line.
func (a *Ask) CheckRetype(answer *Answer) error {
	want := strings.Fields(a.RetypeText())
	if len(want) == 0 || a.refused(answer) || strings.Join(strings.Fields(answer.Retype), " ") == strings.Join(want, " ") {
		return nil
	}
	return ErrNotRetyped
}

// refused reports whether an answer certainly does not allow what is asked.
func (a *Ask) refused(answer *Answer) bool {
	if answer.Error != nil {
		return true
	}
	var allow bool
	if json.Unmarshal(answer.Data, &allow) == nil && string(answer.Data) != "null" {
		return !allow
	}
	var decision struct {
		Choice string `json:"choice"`
	}
	if json.Unmarshal(answer.Data, &decision.Choice) != nil && json.Unmarshal(answer.Data, &decision) != nil {
		return false
	}
	for _, o := range a.Options {
		if o.ID == decision.Choice {
			return strings.HasPrefix(o.Kind, "reject")
		}
	}
	return decision.Choice == "deny" || decision.Choice == "deny_stop"
}
