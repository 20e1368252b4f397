package policy

import (
	"slices"
	"strings"
)

// word is one word of a command.
type word struct {
	text string
	// fixed is false if the shell decides when it runs the line what the word
	// is: the word holds a variable, a glob or the like.
	fixed bool
	// escaped is true if the word holds a backslash that escapes something.
	escaped bool
}

// command is a program, or assignments and a program, with its arguments.
type command []word

// script is what is known about a line for a shell.
type script struct {
	commands []command
	// understood is true if commands are all that the line runs. If it is
	// false there are no commands.
	understood bool
	// files is true if the line redirects to or from a file.
	files bool
}

// maxShells bounds how many shells in shells are read.
const maxShells = 4

// parse reads a line for a shell and the scripts of the shells that it runs.
func parse(line string) script { return parseNested(line, maxShells) }

func parseNested(line string, depth int) script {
	r := reader{line: line}
	if !r.read() {
		return script{}
	}
	out := script{understood: true, files: r.files}
	for _, c := range r.commands {
		assigned, program := c.assignments()
		text, kind := shellScript(program)
		switch {
		case kind == shellUnknown, evaluates(program):
			return script{}
		case kind == shellNone:
			out.commands = append(out.commands, c)
			continue
		}
		if depth == 0 {
			return script{}
		}
		inner := parseNested(text, depth-1)
		if !inner.understood {
			return script{}
		}
		if len(assigned) > 0 {
			out.commands = append(out.commands, assigned)
		}
		out.commands = append(out.commands, inner.commands...)
		out.files = out.files || inner.files
	}
	return out
}

// assignments splits a command into the assignments before its program, and
// the program with its arguments.
func (c command) assignments() (assigned, program command) {
	i := 0
	for i < len(c) && strings.Contains(c[i].text, "=") {
		i++
	}
	return c[:i], c[i:]
}

// reader takes a line apart. It knows the part of the grammar in which all
// shells agree, and gives up on the rest.
type reader struct {
	line     string
	commands []command
	files    bool

	words  command
	text   strings.Builder // of the word that is being read
	word   word            // what is known about it, besides its text
	inWord bool
	quoted bool // a part of the word is quoted
	target bool // the next word is the file of a redirection
}

// read reports false if the line has something in it that it does not know.
func (r *reader) read() bool {
	line := r.line
	r.begin()
	for i := 0; i < len(line); i++ {
		c := line[i]
		if c < ' ' && c != '\t' && c != '\n' || c == 0x7f {
			return false
		}
		switch c {
		case ' ', '\t':
			r.endWord()
		case '\n', ';', '|', '&':
			if !r.endCommand() {
				return false
			}
		case '\'':
			end := strings.IndexByte(line[i+1:], '\'')
			if end < 0 || strings.ContainsFunc(line[i+1:i+1+end], isControl) {
				return false
			}
			r.add(line[i+1 : i+1+end])
			r.quoted = true
			i += end + 1
		case '"':
			n, ok := r.doubleQuoted(line[i+1:])
			if !ok {
				return false
			}
			r.quoted = true
			i += n
		case '\\':
			if i+1 == len(line) || line[i+1] == '\n' || isControl(rune(line[i+1])) {
				return false
			}
			i++
			r.add(line[i : i+1])
			r.word.escaped, r.quoted = true, true
		case '>', '<':
			n, ok := r.redirect(line[i:])
			if !ok {
				return false
			}
			i += n - 1
		case '$':
			// Positional parameters, substitutions and the like are not known.
			if i+1 == len(line) || !isName(line[i+1]) {
				return false
			}
			r.add("$")
			r.word.fixed = false
		case '#':
			if !r.inWord { // a comment
				return false
			}
			r.add("#")
		case '{':
			// {} is an argument of find and xargs. Other braces are not known.
			if len(r.words) == 0 || i+1 == len(line) || line[i+1] != '}' {
				return false
			}
			r.add("{}")
			i++
		case '`', '(', ')', '}':
			return false
		case '!':
			if !r.inWord && len(r.words) == 0 {
				return false
			}
			r.add("!")
		case '*', '?', '[', ']', '~', '^':
			alone := !r.inWord && (i+1 == len(line) || strings.IndexByte(" \t\n;|&", line[i+1]) >= 0)
			if !alone || c != '[' && c != ']' {
				r.word.fixed = false
			}
			r.add(line[i : i+1])
		case '=':
			if !r.inWord { // zsh replaces =ls by the path of ls
				r.word.fixed = false
			}
			r.add("=")
		default:
			if c >= 0x80 { // may be a blank, depending on the locale
				r.word.fixed = false
			}
			r.add(line[i : i+1])
		}
	}
	return r.endCommand()
}

func (r *reader) begin() {
	r.text.Reset()
	r.word = word{fixed: true}
	r.inWord, r.quoted = false, false
}

func (r *reader) add(text string) {
	r.text.WriteString(text)
	r.inWord = true
}

func (r *reader) endWord() {
	if !r.inWord {
		return
	}
	if r.target {
		r.target = false
	} else {
		r.word.text = r.text.String()
		r.words = append(r.words, r.word)
	}
	r.begin()
}

// endCommand reports false if the command misses something, or if its program
// is not known.
func (r *reader) endCommand() bool {
	r.endWord()
	if r.target || len(r.words) > 0 && !r.words[0].fixed {
		return false
	}
	if len(r.words) > 0 {
		r.commands = append(r.commands, r.words)
		r.words = nil
	}
	return true
}

// doubleQuoted reads up to the closing quote and returns how long that was.
func (r *reader) doubleQuoted(s string) (n int, ok bool) {
	r.add("")
	for i := 0; i < len(s); i++ {
		if isControl(rune(s[i])) {
			return 0, false
		}
		switch s[i] {
		case '"':
			return i + 1, true
		case '`':
			return 0, false
		case '$':
			if i+1 == len(s) {
				return 0, false
			}
			switch next := s[i+1]; {
			case isName(next):
				r.word.fixed = false
			case next != '"' && next != ' ':
				return 0, false
			}
			r.add("$")
		case '\\':
			if i+1 == len(s) || s[i+1] == '\n' {
				return 0, false
			}
			if strings.IndexByte("\"\\$`", s[i+1]) >= 0 {
				i++
			}
			r.word.escaped = true
			r.add(s[i : i+1])
		default:
			r.add(s[i : i+1])
		}
	}
	return 0, false
}

// redirect reads the operator of a redirection, and the rest of one that touches
// no file.
func (r *reader) redirect(s string) (n int, ok bool) {
	if r.inWord && !r.quoted && strings.Trim(r.text.String(), "0123456789") == "" { // its descriptor
		r.begin()
	}
	r.endWord()
	if r.target {
		return 0, false
	}
	if n := harmlessRedirect(s); n > 0 {
		return n, true
	}
	operator := s[:len(s)-len(strings.TrimLeft(s, "<>&|"))]
	if !slices.Contains([]string{">", ">>", ">|", ">&", "<", "<>"}, operator) {
		return 0, false // here documents and the like
	}
	r.target, r.files = true, true
	return len(operator), true
}

// harmlessRedirect returns the length of a redirection that touches no file.
func harmlessRedirect(s string) int {
	for _, r := range []string{">&1", ">&2", ">/dev/null", "> /dev/null", "</dev/null", "< /dev/null"} {
		if strings.HasPrefix(s, r) && (len(s) == len(r) || strings.IndexByte(" \t\n;|&", s[len(r)]) >= 0) {
			return len(r)
		}
	}
	return 0
}

func isName(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

// isControl reports whether shells may treat a character in their own way even
// in quotes.
func isControl(r rune) bool {
	return r < ' ' && r != '\t' && r != '\n' || r == 0x7f
}
