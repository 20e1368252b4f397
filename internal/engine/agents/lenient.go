package agents

import (
	"encoding/json"
	"errors"
	"strings"
)

// lenient decodes what can be decoded: a member of another type than we think
// is left out, and takes nothing else with it. Only what is no JSON fails.
func lenient(b []byte, v any) error {
	err := json.Unmarshal(b, v)
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		return nil
	}
	return err
}

// texts joins the text of content that is either a string or a list of blocks.
func texts(content json.RawMessage) string {
	var s string
	if json.Unmarshal(content, &s) == nil {
		return s
	}
	var parts []string
	for _, raw := range list(content) {
		var block struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		if lenient(raw, &block) == nil && block.Text != "" {
			parts = append(parts, block.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// list returns the elements of an array, none if it is not one.
func list(v json.RawMessage) []json.RawMessage {
	var l []json.RawMessage
	if len(v) == 0 || json.Unmarshal(v, &l) != nil {
		return nil
	}
	return l
}

// null reports whether a member is absent or null.
func null(v json.RawMessage) bool { return len(v) == 0 || string(v) == "null" }
