// Package sessions knows the conversations that agents keep on their own disks:
// the tokens and command lines that resume them, the locks that keep two runs
// out of one, and what each has used.
package sessions

import (
	"errors"
	"fmt"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"regexp"
	"strings"
	"sync"
)

// Token names a conversation that an agent keeps on its own disk, so that a
// later run can go on with it. The value is the agent's own and opaque: always
// the full id, since the short forms that some agents accept are ambiguous.
type Token struct {
	Engine string `json:"engine"`
	Value  string `json:"value"`
}

// Key is what session locks are held on.
func (t Token) Key() string { return t.Engine + ":" + t.Value }

// IsZero reports whether the token names nothing.
func (t Token) IsZero() bool { return t.Value == "" }

// ErrToken says that a token cannot be used: it belongs to another engine, or
// has not the shape which that engine gives its ids.
var ErrToken = errors.New("invalid resume token")

// ContinuePrompt is the prompt that is left of a text which held a resume
// line and nothing else.
const ContinuePrompt = "continue"

// resumeSyntax is how one agent writes the command with which a person goes
// on with a conversation: the interactive one, never one that needs a prompt.
type resumeSyntax struct {
	prefix string         // of a formatted line
	line   *regexp.Regexp // a whole line; its group is the token as written
	shape  *regexp.Regexp // of a token; nil means one word
	quotes bool           // a token with blanks stands in double quotes
}

// resumeLine matches a line that is the command and nothing else, but for
// blanks and backticks around it: text beside it makes it a mention.
func resumeLine(command string) *regexp.Regexp {
	return regexp.MustCompile("(?i)^\\s*`?\\s*" + command + "\\s*`?\\s*$")
}

var tokenWord = talk.Lazily("^[^\\s`]+$")

// resumeSyntaxes holds the syntax of each engine. An ACP agent has no command
// of its own that could be known, so ours stands in.
var resumeSyntaxes = sync.OnceValue(func() map[string]resumeSyntax {
	return map[string]resumeSyntax{
		"codex":  {prefix: "codex resume ", line: resumeLine("codex\\s+resume\\s+([^`\\s]+)")},
		"claude": {prefix: "claude --resume ", line: resumeLine("claude\\s+(?:--resume|-r)\\s+([^`\\s]+)")},
		"opencode": {
			prefix: "opencode --session ",
			line:   resumeLine("opencode(?:\\s+run)?\\s+(?:--session|-s)\\s+([^`\\s]+)"),
			shape:  regexp.MustCompile(`^ses_[A-Za-z0-9]+$`),
		},
		"pi": {
			prefix: "pi --session ",
			line:   resumeLine("pi\\s+--session\\s+([^`]+?)"),
			shape:  regexp.MustCompile("^[^`\\x00-\\x1f\\x7f]*[^\\s`\\x00-\\x1f\\x7f][^`\\x00-\\x1f\\x7f]*$"),
			quotes: true,
		},
		"acp": {
			prefix: "spool agent acp --resume ",
			line:   resumeLine("spool\\s+agent\\s+acp\\s+--resume\\s+([^`\\s]+)(?:\\s+--\\s[^`]*)?"),
		},
	}
})

// Check returns [ErrToken] if the token is not one of that engine.
func (t Token) Check(engine string) error {
	if t.Engine != engine {
		return fmt.Errorf("%w: it is of %q, not of %q", ErrToken, t.Engine, engine)
	}
	shape := resumeSyntaxes()[engine].shape
	if shape == nil {
		shape = tokenWord()
	}
	if !shape.MatchString(t.Value) {
		return fmt.Errorf("%w: %q is no id of %s", ErrToken, t.Value, engine)
	}
	return nil
}

// ResumeLine returns the command with which a person goes on with the
// conversation, in backticks. The command of an ACP agent is added to it if
// it is given.
func ResumeLine(engine string, t Token, command ...string) (string, error) {
	s, ok := resumeSyntaxes()[engine]
	if !ok {
		return "", fmt.Errorf("%w: engine %q cannot resume", ErrToken, engine)
	}
	if err := t.Check(engine); err != nil {
		return "", err
	}
	value := t.Value
	if s.quotes && strings.ContainsAny(value, " \"'") {
		value = `"` + strings.ReplaceAll(value, `"`, `\"`) + `"`
	}
	line := s.prefix + value
	if engine == "acp" && len(command) > 0 {
		line += " -- " + strings.Join(command, " ")
	}
	return "`" + line + "`", nil
}

// FindResume returns the token of the last resume line of that engine in a
// text.
func FindResume(engine, text string) (Token, bool) {
	var found Token
	s, ok := resumeSyntaxes()[engine]
	if !ok {
		return found, false
	}
	for line := range strings.Lines(text) {
		if t, ok := s.token(engine, line); ok {
			found = t
		}
	}
	return found, !found.IsZero()
}

// token returns the token of a line that is a resume line.
func (s resumeSyntax) token(engine, line string) (Token, bool) {
	m := s.line.FindStringSubmatch(strings.TrimRight(line, "\r\n"))
	if m == nil {
		return Token{}, false
	}
	value := m[1]
	if s.quotes {
		value = unquote(value)
	}
	t := Token{Engine: engine, Value: value}
	return t, t.Check(engine) == nil
}

// unquote strips one pair of matching quotes.
func unquote(s string) string {
	if len(s) < 2 || s[0] != s[len(s)-1] {
		return s
	}
	switch s[0] {
	case '"':
		return strings.ReplaceAll(s[1:len(s)-1], `\"`, `"`)
	case '\'':
		return s[1 : len(s)-1]
	}
	return s
}

// RouteResume finds which conversation a text, or else the text it replies
// to, goes on with: the engines are asked in order, and the first that knows
// a line wins.
func RouteResume(engines []string, texts ...string) (Token, bool) {
	for _, text := range texts {
		for _, engine := range engines {
			if t, ok := FindResume(engine, text); ok {
				return t, true
			}
		}
	}
	return Token{}, false
}

// StripResume takes the resume lines of the engines out of a prompt.
func StripResume(engines []string, text string) string {
	var kept strings.Builder
	stripped := false
	for line := range strings.Lines(text) {
		if _, ok := RouteResume(engines, line); ok {
			stripped = true
			continue
		}
		kept.WriteString(line)
	}
	if !stripped {
		return text
	}
	if rest := strings.TrimSpace(kept.String()); rest != "" {
		return rest
	}
	return ContinuePrompt
}
