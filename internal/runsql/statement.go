package runsql

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// check refuses what is not one statement that reads. SQLite is told to refuse it as
// well; check says it in better words.
func check(statement string) error {
	rest := skipBlank(statement)
	if rest == "" {
		return errors.New("the statement is empty")
	}
	word := rest
	if i := strings.IndexFunc(rest, func(r rune) bool { return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z') }); i >= 0 {
		word = rest[:i]
	}
	if word = strings.ToUpper(word); !slices.Contains([]string{"SELECT", "WITH", "VALUES", "EXPLAIN"}, word) {
		if word == "" {
			word = rest[:1]
		}
		return fmt.Errorf("%s is refused: the tables can only be read, with SELECT", word)
	}
	if after := afterStatement(rest); skipBlank(strings.TrimLeft(after, "; \t\r\n")) != "" {
		return errors.New("there are two statements: use one at a time")
	}
	return nil
}

// skipBlank returns a text without the space and comments at its beginning.
func skipBlank(text string) string {
	for {
		text = strings.TrimLeft(text, " \t\r\n\f")
		switch {
		case strings.HasPrefix(text, "--"):
			_, text, _ = strings.Cut(text, "\n")
		case strings.HasPrefix(text, "/*"):
			_, text, _ = strings.Cut(text[2:], "*/")
		default:
			return text
		}
	}
}

// afterStatement returns what follows the first semicolon that is not quoted or in a
// comment.
func afterStatement(text string) string {
	for text != "" {
		var end string
		switch c := text[0]; {
		case c == ';':
			return text[1:]
		case c == '\'' || c == '"' || c == '`':
			end = string(c)
		case c == '[':
			end = "]"
		case strings.HasPrefix(text, "--"), strings.HasPrefix(text, "/*"):
			text = skipBlank(text)
			continue
		}
		text = text[1:]
		if end != "" {
			_, text, _ = strings.Cut(text, end) // a doubled quote begins another text
		}
	}
	return ""
}
