package policy

import (
	"path"
	"slices"
	"strings"
)

// maxShells bounds how many shells in shells are looked into.
const maxShells = 4

// splitCommands takes a line for a shell apart into the commands it runs, each
// as its words. whole is false if the line may do something that the words do
// not show: substitutions, redirections into files, and whatever else is not
// plain. The words of such a line are still all of them, to be searched.
func splitCommands(line string) (commands [][]string, whole bool) {
	commands, whole = splitLine(line)
	if !whole {
		return [][]string{looseWords(line)}, false
	}
	return unwrapShells(commands, maxShells)
}

// unwrapShells replaces "bash -lc LINE" by the commands of the line.
func unwrapShells(commands [][]string, depth int) ([][]string, bool) {
	var out [][]string
	for _, words := range commands {
		script, ok := shellScript(words)
		if !ok {
			out = append(out, words)
			continue
		}
		inner, whole := splitLine(script)
		if whole && depth > 0 {
			inner, whole = unwrapShells(inner, depth-1)
		}
		if !whole || depth == 0 {
			return [][]string{append(slices.Concat(commands...), looseWords(script)...)}, false
		}
		out = append(out, inner...)
	}
	return out, true
}

// shellScript returns the script of a command that is a shell with one.
func shellScript(words []string) (string, bool) {
	if len(words) < 3 {
		return "", false
	}
	switch path.Base(words[0]) {
	case "sh", "bash", "zsh", "dash", "ash", "ksh":
	default:
		return "", false
	}
	flags := words[1]
	if len(words) == 3 && strings.HasPrefix(flags, "-") && strings.HasSuffix(flags, "c") && strings.Trim(flags, "-lice") == "" {
		return words[2], true
	}
	return "", false
}

// splitLine is a shell's reader, as far as it is simple.
func splitLine(line string) (commands [][]string, whole bool) {
	var words []string
	var word strings.Builder
	inWord := false
	endWord := func() {
		if inWord {
			words = append(words, word.String())
			word.Reset()
			inWord = false
		}
	}
	endCommand := func() {
		endWord()
		if len(words) > 0 {
			commands = append(commands, words)
			words = nil
		}
	}
	for i := 0; i < len(line); i++ {
		switch c := line[i]; c {
		case ' ', '\t':
			endWord()
		case '\n', ';', '|', '&':
			endCommand()
		case '\'':
			end := strings.IndexByte(line[i+1:], '\'')
			if end < 0 {
				return nil, false
			}
			word.WriteString(line[i+1 : i+1+end])
			inWord = true
			i += end + 1
		case '"':
			n, ok := doubleQuoted(line[i+1:], &word)
			if !ok {
				return nil, false
			}
			inWord = true
			i += n
		case '\\':
			if i+1 == len(line) || line[i+1] == '\n' {
				return nil, false
			}
			i++
			word.WriteByte(line[i])
			inWord = true
		case '>', '<':
			n := harmlessRedirect(line[i:])
			if n == 0 {
				return nil, false
			}
			if s := word.String(); s == "1" || s == "2" || s == "0" { // its descriptor
				word.Reset()
				inWord = false
			}
			endWord()
			i += n - 1
		case '$':
			// A plain variable stays what it is. Where it is a command,
			// which is not known.
			if i+1 == len(line) || !isName(line[i+1]) || len(words) == 0 {
				return nil, false
			}
			word.WriteByte(c)
			inWord = true
		case '#':
			if !inWord {
				return nil, false
			}
			word.WriteByte(c)
		case '`', '(', ')', '{', '}', '\r', 0:
			return nil, false
		case '!':
			if !inWord && len(words) == 0 {
				return nil, false
			}
			word.WriteByte(c)
			inWord = true
		default:
			word.WriteByte(c)
			inWord = true
		}
	}
	endCommand()
	return commands, true
}

// doubleQuoted reads up to the closing quote and says how long that was.
func doubleQuoted(s string, word *strings.Builder) (n int, ok bool) {
	for i := 0; i < len(s); i++ {
		switch s[i] {
		case '"':
			return i + 1, true
		case '`':
			return 0, false
		case '$':
			if i+1 == len(s) || !isName(s[i+1]) && s[i+1] != '"' && s[i+1] != ' ' {
				return 0, false
			}
			word.WriteByte('$')
		case '\\':
			if i+1 < len(s) && strings.IndexByte("\"\\$`", s[i+1]) >= 0 {
				i++
			}
			word.WriteByte(s[i])
		default:
			word.WriteByte(s[i])
		}
	}
	return 0, false
}

func isName(c byte) bool {
	return c == '_' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
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

// looseWords are the words of a line that is not understood.
func looseWords(line string) []string {
	return strings.FieldsFunc(line, func(r rune) bool {
		return r <= ' ' || strings.ContainsRune("'\"`;|&()<>{}$!\\=", r)
	})
}

// wrappers are words before which a command can stand.
var wrappers = map[string]bool{
	"sudo": true, "doas": true, "env": true, "nohup": true, "time": true, "nice": true, "exec": true, "command": true, "builtin": true,
	"xargs": true, "timeout": true, "setsid": true, "eval": true, "stdbuf": true, "ionice": true, "unshare": true, "find": true,
	"if": true, "then": true, "else": true, "elif": true, "while": true, "until": true, "do": true, "!": true,
}

// wrapped returns where in the words of a command another one may begin:
// at the first, and anywhere after a word that runs what follows it.
func wrapped(words []string) [][]string {
	i := 0
	for i < len(words) && strings.Contains(words[i], "=") { // assignments
		i++
	}
	starts := [][]string{words[i:]}
	if i < len(words) && wrappers[path.Base(words[i])] {
		for j := i + 1; j < len(words); j++ {
			starts = append(starts, words[j:])
		}
	}
	return starts
}
