package cli

import (
	"bytes"
	"os"
	"strings"

	"github.com/spool-run/spool/internal/lazyregexp"
	"github.com/spool-run/spool/internal/prompt"
)

// The colours of a traceback.
const (
	colourNone  = "\x1b[0m"
	colourFile  = "\x1b[36m"   // cyan: where
	colourError = "\x1b[1;31m" // bold red: what was raised
	colourMark  = "\x1b[31m"   // red: carets
)

// wantsColour reports whether a terminal shows colours and the user wants them.
func wantsColour(f *os.File) bool {
	return isTerminal(f) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
}

var (
	frameLine  = lazyregexp.New(`^\s*File ".*", line \d+`)
	caretLine  = lazyregexp.New(`^\s*[~^]+\s*$`)
	raisedLine = lazyregexp.New(`^([A-Za-z_][\w.]*)(:.*)?$`)
)

// isTraceback reports whether output is a whole traceback without colours.
func isTraceback(b []byte) bool {
	begins := bytes.HasPrefix(b, []byte("Traceback (most recent call last):\n")) || frameLine().Match(b)
	return begins && bytes.HasSuffix(b, []byte("\n")) && bytes.IndexByte(b, esc) < 0
}

// colourTraceback colours the places, the source lines, the marks and the
// exceptions of a traceback.
func colourTraceback(text string) string {
	lines := strings.Split(text, "\n")
	source := false // the line before says where this line is from
	for i, line := range lines {
		frame := frameLine().MatchString(line)
		switch {
		case frame:
			lines[i] = colourFile + line + colourNone
		case caretLine().MatchString(line):
			lines[i] = colourMark + line + colourNone
		case source && strings.HasPrefix(line, "    "):
			lines[i] = prompt.Highlight(line)
		case raisedLine().MatchString(line):
			m := raisedLine().FindStringSubmatch(line)
			lines[i] = colourError + m[1] + colourNone + m[2]
		}
		source = frame
	}
	return strings.Join(lines, "\n")
}
