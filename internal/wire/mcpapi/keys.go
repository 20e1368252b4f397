package mcpapi

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spool-run/spool"
)

// keyPattern matches the names of keys.
const keyPattern = `^(ctrl-[a-z]|alt-.|enter|tab|esc|up|down|left|right|home|end|pgup|pgdn|backspace|delete|f[0-9]{1,2})$`

// keys are what a terminal sends for keys.
var keys = map[string]string{
	"enter": "\r", "tab": "\t", "esc": "\x1b", "up": "\x1b[A", "down": "\x1b[B", "right": "\x1b[C", "left": "\x1b[D",
	"home": "\x1b[H", "end": "\x1b[F", "pgup": "\x1b[5~", "pgdn": "\x1b[6~", "backspace": "\x7f", "delete": "\x1b[3~",
}

// functionKeys are what a terminal sends for f1, f2 …
var functionKeys = []string{"\x1bOP", "\x1bOQ", "\x1bOR", "\x1bOS", "\x1b[15~", "\x1b[17~", "\x1b[18~", "\x1b[19~", "\x1b[20~", "\x1b[21~", "\x1b[23~", "\x1b[24~"}

// typed is a text with keys after it, as a terminal sends them.
func typed(text string, names []string) ([]byte, error) {
	out := []byte(text)
	for _, name := range names {
		if sent, ok := keys[name]; ok {
			out = append(out, sent...)
			continue
		}
		if letter, ok := strings.CutPrefix(name, "ctrl-"); ok {
			out = append(out, letter[0]-'a'+1)
			continue
		}
		if letter, ok := strings.CutPrefix(name, "alt-"); ok {
			out = append(append(out, '\x1b'), letter...)
			continue
		}
		n, err := strconv.Atoi(strings.TrimPrefix(name, "f"))
		if err != nil || n < 1 || n > len(functionKeys) {
			return nil, fmt.Errorf("%w: there is no key %q", spool.ErrInvalid, name)
		}
		out = append(out, functionKeys[n-1]...)
	}
	return out, nil
}
