package narrate

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/lazyregexp"
	"github.com/spool-run/spool/internal/visible"
)

// Limits of what is told of an action, unless the narrator is verbose.
const (
	maxTitle  = 200 // columns of a title
	maxQuote  = 5   // lines of the output of a failed action
	maxDiff   = 24  // lines of the diffs of an action
	lineWidth = 200 // columns of a line of a diff or of output
)

func (n *Narrator) action(e *spool.Event) {
	var a agent.Action
	if !decode(e, &a) || a.Kind == agent.ActionTurn || a.History && !n.Verbose {
		return
	}
	title := n.title(&a)
	switch a.Phase {
	case agent.ActionStarted:
		if n.open == nil {
			n.open = make(map[string]running)
		}
		if _, ok := n.open[a.ID]; !ok {
			n.order = append(n.order, a.ID)
		}
		n.open[a.ID] = running{title, e.Time}
		if n.Starts {
			n.line("… " + title)
		} else {
			n.flush()
		}
	case agent.ActionUpdated:
		if r, ok := n.open[a.ID]; ok {
			n.open[a.ID] = running{title, r.since}
		}
	default:
		n.completed(e, &a, title)
	}
}

// completed tells the end of an action.
func (n *Narrator) completed(e *spool.Event, a *agent.Action, title string) {
	mark := "•" // whether it succeeded is not known
	failed := a.OK != nil && !*a.OK
	switch {
	case failed:
		mark = n.bad("✗")
	case a.OK != nil:
		mark = n.good("✓")
	}
	var facts []string
	added, removed := countDiff(a.Changes)
	if !failed && added+removed > 0 {
		facts = append(facts, fmt.Sprintf("+%d -%d", added, removed))
	}
	if a.ExitCode != nil && *a.ExitCode != 0 {
		facts = append(facts, fmt.Sprintf("exit %d", *a.ExitCode))
	}
	if a.Synthetic {
		facts = append(facts, cmp.Or(visible.Short(a.Message, maxTitle), "not finished"))
	}
	if took, ok := n.took(e, a); ok {
		facts = append(facts, elapsed(took))
	}
	n.forget(a.ID)
	line := mark + " " + title
	if len(facts) > 0 {
		line += n.dim(" (" + strings.Join(facts, ", ") + ")")
	}
	n.line(line)
	switch {
	case failed && !a.Synthetic:
		n.quote(cmp.Or(a.Output, a.Message))
	case failed || n.shown[a.ID]:
	case len(a.Changes) > 0:
		limit := maxDiff
		if n.Verbose {
			limit = -1
		}
		if text := n.diff(a.Changes, limit); text != "" {
			n.line(text)
		}
	case n.Verbose && a.Output != "":
		n.line(n.dim("    " + indent(visible.Text(visible.Unstyled(a.Output)), "    ")))
	}
}

// took returns how long an action ran, as far as that is known.
func (n *Narrator) took(e *spool.Event, a *agent.Action) (time.Duration, bool) {
	if a.DurationMs > 0 {
		return time.Duration(a.DurationMs) * time.Millisecond, true
	}
	r, ok := n.open[a.ID]
	return e.Time.Sub(r.since), ok
}

func (n *Narrator) forget(id string) {
	delete(n.open, id)
	for i, o := range n.order {
		if o == id {
			n.order = append(n.order[:i:i], n.order[i+1:]...)
			return
		}
	}
}

// quote tells the last lines of an output, where the reason of a failure usually
// is.
func (n *Narrator) quote(text string) {
	var lines []string
	for l := range strings.Lines(visible.Unstyled(text)) {
		if strings.TrimSpace(l) != "" {
			lines = append(lines, n.dim("    "+visible.Cut(visible.Text(l), lineWidth)))
		}
	}
	if n.Verbose {
		n.line(strings.Join(lines, "\n"))
		return
	}
	for _, l := range lines[max(0, len(lines)-maxQuote):] {
		n.line(l)
	}
}

// title returns the title of an action.
func (n *Narrator) title(a *agent.Action) string {
	text := visible.Short(a.Title, maxTitle)
	switch a.Kind {
	case agent.ActionCommand:
		return "$ " + visible.Short(unwrap(a.Title), maxTitle)
	case agent.ActionFileChange:
		if len(a.Changes) == 0 {
			return "edit " + n.relative(text)
		}
		var files []string
		for _, c := range a.Changes {
			files = append(files, n.changeTitle(a, c))
		}
		return visible.Short(strings.Join(files, ", "), maxTitle)
	case agent.ActionRead, agent.ActionSearch, agent.ActionFetch, agent.ActionWebSearch, agent.ActionSubagent:
		kind := strings.ReplaceAll(string(a.Kind), "_", " ")
		if !strings.HasPrefix(text, kind) {
			return kind + " " + text
		}
	}
	return text
}

// changeTitle says what happens to one file.
func (n *Narrator) changeTitle(a *agent.Action, c agent.FileChange) string {
	verb := map[string]string{"add": "add", "delete": "delete", "move": "move"}[c.Kind]
	if verb == "" && strings.EqualFold(a.Tool, "write") {
		verb = "write"
	}
	return cmp.Or(verb, "edit") + " " + n.relative(visible.Line(c.Path))
}

// relative shortens a path below the working directory.
func (n *Narrator) relative(path string) string {
	if rel, err := filepath.Rel(n.cwd, path); n.cwd != "" && err == nil && filepath.IsLocal(rel) {
		return rel
	}
	return path
}

// wrapped matches a script that an agent gives to a shell, in quotes in which the
// outer shell would change nothing.
var wrapped = lazyregexp.New("(?s)^(?:/usr)?(?:/bin/)?(?:bash|sh|zsh) -l?c (?:'([^']*)'|\"([^\"$`\\\\!]*)\"|([A-Za-z0-9_./-]+))$")

// unwrap returns the script of a command that only starts a shell for it.
func unwrap(command string) string {
	if m := wrapped().FindStringSubmatch(strings.TrimSpace(command)); m != nil {
		return cmp.Or(m[1]+m[2]+m[3], command)
	}
	return command
}

// countDiff counts the lines that diffs add and remove.
func countDiff(changes []agent.FileChange) (added, removed int) {
	for _, c := range changes {
		for l := range strings.Lines(c.Diff) {
			switch l[0] {
			case '+':
				added++
			case '-':
				removed++
			}
		}
	}
	return added, removed
}

// diff returns the diffs of changes, indented, in at most limit lines. A negative
// limit means all of them.
func (n *Narrator) diff(changes []agent.FileChange, limit int) string {
	var lines []string
	for _, c := range changes {
		if c.Diff == "" {
			continue
		}
		if len(changes) > 1 {
			lines = append(lines, "    "+n.bold(n.relative(visible.Line(c.Path))))
		}
		for l := range strings.Lines(c.Diff) {
			if strings.TrimSpace(l) == "@@ @@" && !strings.Contains(c.Diff, "\n@@") {
				continue // the only hunk, without a place
			}
			lines = append(lines, "    "+n.diffLine(l, limit >= 0))
		}
	}
	if rest := len(lines) - limit; limit >= 0 && rest > 1 {
		lines = append(lines[:limit], n.dim(fmt.Sprintf("    … %d more lines", rest)))
	}
	return strings.Join(lines, "\n")
}

// diffLine colours one line of a diff.
func (n *Narrator) diffLine(line string, short bool) string {
	text := visible.Text(line)
	if short {
		text = visible.Cut(text, lineWidth)
	}
	switch line[0] {
	case '+':
		return n.good(text)
	case '-':
		return n.bad(text)
	case '@':
		return n.mark(text)
	}
	return n.dim(text)
}
