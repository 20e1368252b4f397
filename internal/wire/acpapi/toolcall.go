package acpapi

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// maxOutput is how many bytes of the output of a tool call a client gets.
const maxOutput = 64 << 10

// kinds are their words for ours; other kinds are "other".
var kinds = map[agent.ActionKind]string{
	agent.ActionCommand: "execute", agent.ActionFileChange: "edit", agent.ActionRead: "read", agent.ActionSearch: "search",
	agent.ActionWebSearch: "fetch", agent.ActionFetch: "fetch", agent.ActionNote: "think", agent.ApprovePlan: "switch_mode",
}

// kindOf is the kind of a tool call.
func kindOf(kind agent.ActionKind, changes []agent.FileChange) string {
	for _, special := range []string{"delete", "move"} {
		other := func(c agent.FileChange) bool { return c.Kind != special }
		if kind == agent.ActionFileChange && len(changes) > 0 && !slices.ContainsFunc(changes, other) {
			return special
		}
	}
	return cmp.Or(kinds[kind], "other")
}

// action makes a tool call of an action.
func (m *mapper) action(e *spool.Event, a *agent.Action) toolUpdate {
	u := toolUpdate{Update: "tool_call_update", ID: m.unique(a.ID), Status: "in_progress", Meta: m.at(e)}
	if !m.calls[a.ID] {
		m.calls[a.ID] = true
		u.Update, u.Name = "tool_call", a.Tool
		u.RawInput = a.Input
	}
	u.Title, u.Kind = cmp.Or(a.Title, a.Tool, string(a.Kind)), kindOf(a.Kind, a.Changes)
	u.Content, u.Locations = m.diffs(a.Changes)
	for _, p := range inputPaths(a.Input) {
		u.Locations = m.addLocation(u.Locations, p, 0)
	}
	output := cut(a.Output)
	if more := rest(a.OutputBlob, len(output)); more != "" {
		output += more
	} else if len(output) < len(a.Output) {
		output += fmt.Sprintf("\n… %d more bytes", len(a.Output)-len(output))
	}
	if output != "" {
		u.Content = append(u.Content, textContent(fenced(output)))
	}
	if a.Phase != agent.ActionCompleted {
		return u
	}
	u.Status = "completed"
	if a.OK != nil && !*a.OK {
		u.Status = "failed"
	}
	if a.Message != "" {
		u.Content = append(u.Content, textContent(a.Message))
	}
	if output != "" || a.ExitCode != nil || a.Message != "" {
		u.RawOutput = &rawOutput{output, a.ExitCode, a.Message}
	}
	return u
}

func textContent(text string) toolContent {
	return toolContent{Type: "content", Content: new(textBlock(text))}
}

// cut cuts output where a character ends.
func cut(s string) string {
	if len(s) <= maxOutput {
		return s
	}
	n := maxOutput
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// inputPaths are the files that the arguments of a tool name, by the names that agents
// use for them.
func inputPaths(input json.RawMessage) []string {
	var in struct {
		A string `json:"file_path"`
		B string `json:"filePath"`
		C string `json:"path"`
		D string `json:"notebook_path"`
	}
	if len(input) == 0 || json.Unmarshal(input, &in) != nil {
		return nil
	}
	var out []string
	for _, p := range []string{in.A, in.B, in.C, in.D} {
		if p != "" {
			out = append(out, p)
		}
	}
	return out
}

// path makes a path absolute.
func (m *mapper) path(p string) string {
	if filepath.IsAbs(p) || m.cwd == "" {
		return p
	}
	return filepath.Join(m.cwd, p)
}

// addLocation adds a file that is not there yet.
func (m *mapper) addLocation(list []location, p string, line int) []location {
	p = m.path(p)
	if slices.ContainsFunc(list, func(l location) bool { return l.Path == p }) {
		return list
	}
	return append(list, location{p, line})
}

// diffs shows changes of files: each hunk with the text before and after it, as version 1
// of the protocol has no other form.
func (m *mapper) diffs(changes []agent.FileChange) (content []toolContent, locations []location) {
	for _, c := range changes {
		path := m.path(c.Path)
		first := 0
		if m.version == 2 {
			content = append(content, diff2(path, &c))
			if all := hunks(c.Diff); len(all) > 0 {
				first = all[0].line
			}
			locations = m.addLocation(locations, c.Path, first)
			continue
		}
		for _, h := range hunks(c.Diff) {
			d := toolContent{Type: "diff", Path: path, NewText: &h.after}
			if h.before != "" || c.Kind != "add" {
				d.OldText = &h.before
			}
			content = append(content, d)
			if first == 0 {
				first = h.line
			}
		}
		locations = m.addLocation(locations, c.Path, first)
	}
	return content, locations
}

// hunk is a part of a file before and after a change.
type hunk struct {
	line          int // where it is after the change; zero if that is not known
	before, after string
}

// hunks splits a unified diff.
func hunks(diff string) []hunk {
	var out []hunk
	var before, after []byte
	last := byte(' ')
	end := func() {
		if len(out) > 0 {
			out[len(out)-1].before, out[len(out)-1].after = string(before), string(after)
		}
		before, after = nil, nil
	}
	for line := range strings.Lines(diff) {
		if strings.HasPrefix(line, "@@") {
			end()
			out = append(out, hunk{line: newLine(line)})
			continue
		}
		text := strings.TrimSuffix(line, "\n")
		if text == "" {
			text = " " // some leave out the space of an empty line
		}
		switch text[0] {
		case ' ':
			before = append(append(before, text[1:]...), '\n')
			after = append(append(after, text[1:]...), '\n')
		case '-':
			before = append(append(before, text[1:]...), '\n')
		case '+':
			after = append(append(after, text[1:]...), '\n')
		case '\\': // no newline at the end of the file
			if last != '+' {
				before = bytes.TrimSuffix(before, []byte("\n"))
			}
			if last != '-' {
				after = bytes.TrimSuffix(after, []byte("\n"))
			}
		}
		last = text[0]
	}
	end()
	return out
}

// newLine reads the line after the change in the head of a hunk, such as
// "@@ -1,3 +4,5 @@".
func newLine(head string) int {
	_, after, _ := strings.Cut(head, "+")
	digits := strings.IndexFunc(after, func(r rune) bool { return r < '0' || r > '9' })
	if digits < 0 {
		digits = len(after)
	}
	n, err := strconv.Atoi(after[:digits])
	if err != nil {
		return 0
	}
	return n
}
