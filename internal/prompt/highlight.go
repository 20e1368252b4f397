package prompt

import (
	"slices"
	"strings"
	"unicode"
)

// style is how a character looks.
type style uint8

const (
	plain style = iota
	keyword
	builtin
	literal // a string
	number
	comment
	defined // the name after def and class
	decorator
	command // a magic or a shell command
)

// sgr are the parameters of the escape sequence that begins a style.
var sgr = [...]string{
	keyword: "1;34", builtin: "36", literal: "32", number: "35", comment: "2;37", defined: "1;36", decorator: "33", command: "33",
}

var keywords = strings.Fields(`False None True and as assert async await break class continue def del elif else except
	finally for from global if import in is lambda nonlocal not or pass raise return try while with yield match case`)

var builtins = strings.Fields(`abs all any ascii bin bool breakpoint bytearray bytes callable chr classmethod compile complex
	delattr dict dir display divmod enumerate eval exec exit filter float format frozenset getattr globals hasattr hash help
	hex id input int isinstance issubclass iter len list locals map max memoryview min next object oct open ord pow print
	property quit range repr reversed round self set setattr slice sorted staticmethod str sum super tuple type vars zip
	BaseException Exception ArithmeticError AssertionError AttributeError EOFError FileNotFoundError ImportError IndexError
	KeyError KeyboardInterrupt LookupError MemoryError ModuleNotFoundError NameError NotImplementedError OSError
	OverflowError PermissionError RecursionError RuntimeError StopIteration SyntaxError SystemExit TimeoutError TypeError
	UnicodeError ValueError Warning ZeroDivisionError`)

// styles returns the style of each character of Python source.
func styles(text []rune) []style {
	out := make([]style, len(text))
	paint := func(from, to int, s style) {
		for i := from; i < to; i++ {
			out[i] = s
		}
	}
	begins := true // of a line: only spaces are before
	last := ""     // word before, on the same line
	for i := 0; i < len(text); {
		r := text[i]
		from := i
		switch {
		case r == '\n':
			begins, last = true, ""
			i++
			continue
		case unicode.IsSpace(r):
			i++
			continue
		case begins && (r == '%' || r == '!' || r == '?'):
			for i < len(text) && text[i] != '\n' {
				i++
			}
			paint(from, i, command)
			if strings.HasPrefix(string(text[from:i]), "%%") && from == 0 {
				return out // the rest is not Python
			}
		case begins && r == '@':
			for i < len(text) && (text[i] == '@' || text[i] == '.' || isWord(text[i])) {
				i++
			}
			paint(from, i, decorator)
		case r == '#':
			for i < len(text) && text[i] != '\n' {
				i++
			}
			paint(from, i, comment)
		case r == '\'' || r == '"':
			i = stringEnd(text, i)
			paint(from, i, literal)
		case unicode.IsDigit(r):
			for i < len(text) && (isWord(text[i]) || text[i] == '.') {
				i++
			}
			paint(from, i, number)
		case isWord(r):
			for i < len(text) && isWord(text[i]) {
				i++
			}
			word := string(text[from:i])
			if i < len(text) && (text[i] == '\'' || text[i] == '"') && isPrefix(word) {
				i = stringEnd(text, i)
				paint(from, i, literal)
				break
			}
			paint(from, i, wordStyle(word, last, from > 0 && text[from-1] == '.'))
			last = word
		default:
			i++
		}
		begins = false
	}
	return out
}

// wordStyle returns the style of a name or keyword. Last is the word before, and
// member says that a dot is.
func wordStyle(word, last string, member bool) style {
	switch {
	case member:
		return plain
	case last == "def" || last == "class":
		return defined
	case (word == "match" || word == "case") && last != "":
		return plain
	case slices.Contains(keywords, word):
		return keyword
	case slices.Contains(builtins, word):
		return builtin
	}
	return plain
}

func isWord(r rune) bool { return r == '_' || unicode.IsLetter(r) || unicode.IsDigit(r) }

// isPrefix reports whether a string literal may begin with the word.
func isPrefix(word string) bool {
	return len(word) <= 2 && strings.Trim(strings.ToLower(word), "rbfut") == ""
}

// stringEnd returns the position after the string that begins with the quote at i.
func stringEnd(text []rune, i int) int {
	quote := text[i]
	n := 1
	if i+2 < len(text) && text[i+1] == quote && text[i+2] == quote {
		n = 3
	}
	for j := i + n; j < len(text); j++ {
		switch {
		case text[j] == '\\':
			j++
		case text[j] == '\n' && n == 1:
			return j
		case text[j] == quote && (n == 1 || j+2 < len(text) && text[j+1] == quote && text[j+2] == quote):
			return j + n
		}
	}
	return len(text)
}

// Highlight returns Python source with the escape sequences that colour it.
func Highlight(source string) string {
	text := []rune(source)
	var b strings.Builder
	now := plain
	for i, s := range styles(text) {
		if text[i] == '\n' {
			s = plain
		}
		now = restyle(&b, now, s)
		b.WriteRune(text[i])
	}
	restyle(&b, now, plain)
	return b.String()
}

// restyle writes what changes the style of the text that follows.
func restyle(b *strings.Builder, now, next style) style {
	if now == next {
		return now
	}
	if now != plain {
		b.WriteString("\x1b[0m")
	}
	if next != plain {
		b.WriteString("\x1b[" + sgr[next] + "m")
	}
	return next
}
