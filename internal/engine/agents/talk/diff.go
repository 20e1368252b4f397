package talk

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spool-run/spool/agent"
)

// diffContext is how many unchanged lines a diff shows around a change.
const diffContext = 3

// LineDiff shows a change of a file as one hunk of a unified diff, from the first
// line that differs to the last.
func LineDiff(before, after string) string {
	a, b := splitLines(before), splitLines(after)
	start := 0
	for start < len(a) && start < len(b) && a[start] == b[start] {
		start++
	}
	end := 0
	for end < len(a)-start && end < len(b)-start && a[len(a)-1-end] == b[len(b)-1-end] {
		end++
	}
	if start+end == len(a) && start+end == len(b) {
		return ""
	}
	first, last := max(0, start-diffContext), max(0, end-diffContext)
	var out strings.Builder
	fmt.Fprintf(&out, "@@ -%s +%s @@\n", hunkRange(first, len(a)-last-first), hunkRange(first, len(b)-last-first))
	prefixLines(&out, " ", a[first:start])
	prefixLines(&out, "-", a[start:len(a)-end])
	prefixLines(&out, "+", b[start:len(b)-end])
	prefixLines(&out, " ", a[len(a)-end:len(a)-last])
	return cutDiff(out.String())
}

// prefixLines writes lines with a sign before each.
func prefixLines(out *strings.Builder, sign string, lines []string) {
	for _, l := range lines {
		out.WriteString(sign + l + "\n")
	}
}

// hunkRange is a range of lines as diff writes it.
func hunkRange(start, n int) string {
	if n == 0 {
		return fmt.Sprintf("%d,0", start)
	}
	return fmt.Sprintf("%d,%d", start+1, n)
}

func splitLines(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(strings.TrimSuffix(s, "\n"), "\n")
}

// cutDiff keeps a diff within MaxText and says how much is missing.
func cutDiff(diff string) string {
	if len(diff) <= MaxText {
		return diff
	}
	head := diff[:strings.LastIndexByte(diff[:MaxText], '\n')+1]
	if head == "" {
		head = strings.ToValidUTF8(diff[:MaxText], "\uFFFD") + "\n"
	}
	return head + fmt.Sprintf("… %d more bytes\n", len(diff)-len(head))
}

// PatchHunks returns the hunks of a unified diff of one file, without the lines
// that name the file.
func PatchHunks(patch string) string {
	if strings.HasPrefix(patch, "@@") {
		return cutDiff(patch)
	}
	if _, hunks, ok := strings.Cut(patch, "\n@@"); ok {
		return cutDiff("@@" + hunks)
	}
	return ""
}

// replacement is a text that an edit replaces, whatever the agent calls it.
type replacement struct {
	Old  string `json:"old_string"`
	New  string `json:"new_string"`
	OldC string `json:"oldString"`
	NewC string `json:"newString"`
	OldT string `json:"oldText"`
	NewT string `json:"newText"`
}

// hunk shows the replacement. Where in the file it is, is not known.
func (r replacement) hunk() string {
	before, after := r.Old+r.OldC+r.OldT, r.New+r.NewC+r.NewT
	if before == after {
		return ""
	}
	var out strings.Builder
	out.WriteString("@@ @@\n")
	prefixLines(&out, "-", splitLines(before))
	prefixLines(&out, "+", splitLines(after))
	return out.String()
}

// inputDiff shows what a call of a tool that writes or edits a file would change,
// as far as its arguments tell.
func inputDiff(input json.RawMessage) string {
	var in struct {
		replacement
		Content *string       `json:"content"`
		Edits   []replacement `json:"edits"`
	}
	if Decode(input, &in) != nil {
		return ""
	}
	if in.Content != nil {
		return LineDiff("", *in.Content)
	}
	diff := in.hunk()
	for _, e := range in.Edits {
		diff += e.hunk()
	}
	return cutDiff(diff)
}

// Changed returns the change of one file with another diff, if that is not
// empty.
func Changed(c agent.FileChange, kind, diff string) []agent.FileChange {
	if kind != "" {
		c.Kind = kind
	}
	if diff != "" {
		c.Diff = diff
	}
	return []agent.FileChange{c}
}
