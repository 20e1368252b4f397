package talk

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"sync"
)

// Decode decodes what can be decoded: a member of another type than we think
// is left out, and takes nothing else with it. Only what is no JSON fails.
func Decode(b []byte, v any) error {
	err := json.Unmarshal(b, v)
	var mismatch *json.UnmarshalTypeError
	if errors.As(err, &mismatch) {
		return nil
	}
	return err
}

// Text joins the text of content that is either a string or a list of blocks.
func Text(content json.RawMessage) string {
	var s string
	if json.Unmarshal(content, &s) == nil {
		return s
	}
	var parts []string
	for _, raw := range Elements(content) {
		var block struct {
			Type string `json:"type"`
			Text string `json:"text"`
		}
		if Decode(raw, &block) == nil && block.Text != "" {
			parts = append(parts, block.Text)
		}
	}
	return strings.Join(parts, "\n")
}

// Elements returns the elements of an array, none if it is not one.
func Elements(v json.RawMessage) []json.RawMessage {
	var l []json.RawMessage
	if len(v) == 0 || json.Unmarshal(v, &l) != nil {
		return nil
	}
	return l
}

// IsNull reports whether a member is absent or null.
func IsNull(v json.RawMessage) bool { return len(v) == 0 || string(v) == "null" }

// Lazily compiles a regular expression when it is first used: most commands
// never talk to an agent, and each would pay for it at its start.
func Lazily(expr string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expr) })
}
