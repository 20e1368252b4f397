package codextest

import (
	"strconv"
	"strings"

	"github.com/spool-run/spool/internal/modeltest"
)

// Output is the output of a tool call.
type Output struct {
	CallID string
	Raw    string // everything, including codex's header

	Text     string // output of the command since the last call
	Exited   bool
	ExitCode int
	Session  int // session of a running command for write_stdin, or 0
}

// Outputs returns the tool outputs that the model has received, oldest first.
func Outputs(m *modeltest.Model) []Output {
	requests := m.Requests()
	if len(requests) == 0 {
		return nil
	}
	return outputs(requests[len(requests)-1]) // each request repeats the history
}

// outputs returns the tool outputs in the conversation, oldest first.
func outputs(r *modeltest.Request) []Output {
	var outs []Output
	for _, item := range r.Outputs() {
		outs = append(outs, parseOutput(item.CallID, item.Output.String()))
	}
	return outs
}

// parseOutput parses the output of exec_command, write_stdin and apply_patch:
//
//	Chunk ID: afb127
//	Wall time: 0.0000 seconds
//	Process exited with code 3
//	Original token count: 4
//	Output:
//	hi
//
// Text without an Output line, such as an error, is kept unchanged.
func parseOutput(callID, raw string) Output {
	out := Output{CallID: callID, Raw: raw, Text: raw}
	header, text, ok := strings.Cut(raw, "\nOutput:\n")
	if !ok {
		return out
	}
	out.Text = text
	for line := range strings.Lines(header) {
		line = strings.TrimSpace(line)
		if n, ok := numberAfter(line, "Process exited with code "); ok {
			out.Exited, out.ExitCode = true, n
		} else if n, ok := numberAfter(line, "Exit code: "); ok {
			out.Exited, out.ExitCode = true, n
		} else if n, ok := numberAfter(line, "Process running with session ID "); ok {
			out.Session = n
		}
	}
	return out
}

func numberAfter(line, prefix string) (int, bool) {
	digits, ok := strings.CutPrefix(line, prefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil
}
