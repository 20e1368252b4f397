package talk

import (
	"cmp"
	"encoding/json"
	"strings"

	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/lazyregexp"
)

// Describe makes an action of a call of one of the tools that agents have in
// common, whatever they call its arguments.
func Describe(tool string, input json.RawMessage, cwd string) agent.Action {
	var in struct {
		Command     json.RawMessage `json:"command"`
		FilePath    string          `json:"file_path"`
		FilePathOC  string          `json:"filePath"`
		Path        string          `json:"path"`
		Notebook    string          `json:"notebook_path"`
		Pattern     string          `json:"pattern"`
		Query       string          `json:"query"`
		URL         string          `json:"url"`
		Description string          `json:"description"`
		Prompt      string          `json:"prompt"`
		Skill       string          `json:"skill"`
	}
	_ = Decode(input, &in) // what is missing is not shown
	a := agent.Action{Kind: agent.ActionTool, Title: tool, Tool: tool}
	if !IsNull(input) {
		a.Input = input
	}
	path := Relative(cmp.Or(in.FilePath, in.FilePathOC, in.Notebook, in.Path), cwd)
	switch strings.ToLower(tool) {
	case "bash", "shell", "killshell", "local_shell":
		a.Kind = agent.ActionCommand
		if c := CommandText(in.Command); c != "" {
			a.Title = RelativeCommand(c, cwd)
		}
	case "edit", "write", "notebookedit", "multiedit", "patch", "apply_patch":
		a.Kind = agent.ActionFileChange
		if path != "" {
			a.Title = path
			a.Changes = []agent.FileChange{{Path: path, Kind: "update", Diff: inputDiff(input)}}
		}
	case "read":
		a.Kind, a.Title = agent.ActionRead, VerbTitle("read", path, true)
	case "ls", "list":
		a.Kind, a.Title = agent.ActionRead, VerbTitle("ls", path, true)
	case "glob":
		a.Kind, a.Title = agent.ActionSearch, VerbTitle("glob", in.Pattern, true)
	case "grep":
		a.Kind, a.Title = agent.ActionSearch, VerbTitle("grep", in.Pattern, false)
	case "find":
		a.Kind, a.Title = agent.ActionSearch, VerbTitle("find", in.Pattern, false)
	case "websearch":
		a.Kind, a.Title = agent.ActionWebSearch, cmp.Or(in.Query, tool)
	case "webfetch":
		a.Kind, a.Title = agent.ActionFetch, cmp.Or(in.URL, tool)
	case "todowrite":
		a.Kind, a.Title = agent.ActionNote, "update todos"
	case "todoread":
		a.Kind, a.Title = agent.ActionNote, "read todos"
	case "askuserquestion", "question":
		a.Kind, a.Title = agent.ActionNote, "ask user"
	case "task", "agent":
		a.Kind, a.Title = agent.ActionSubagent, Title(cmp.Or(in.Description, in.Prompt, tool))
	case "skill":
		a.Kind, a.Title = agent.ActionSkill, cmp.Or(in.Skill, tool)
	default:
		if strings.HasPrefix(tool, "mcp__") {
			a.Kind = agent.ActionMCP
			a.Title = strings.Replace(strings.TrimPrefix(tool, "mcp__"), "__", ".", 1)
		}
	}
	return a
}

// VerbTitle is the title of an action: a verb and what it is about, as code if
// that is asked for.
func VerbTitle(verb, what string, code bool) string {
	switch {
	case what == "":
		return verb
	case code:
		return verb + ": `" + what + "`"
	}
	return verb + ": " + what
}

// CommandText returns a command as a line for a shell. The command is a string,
// which is the line, or an argument vector, which is quoted so that a shell
// reads the same words from it.
func CommandText(v json.RawMessage) string {
	var s string
	if json.Unmarshal(v, &s) == nil {
		return s
	}
	var argv []string
	if json.Unmarshal(v, &argv) == nil {
		return QuoteArgs(argv)
	}
	return ""
}

// plainArg matches a word that no shell changes.
var plainArg = lazyregexp.New(`^[A-Za-z0-9_./:,+@%-][A-Za-z0-9_./:,+@%=-]*$`)

// QuoteArgs returns the line from which a shell reads the words of an argument
// vector. A word with an equals sign before the program would be an assignment
// and is quoted.
func QuoteArgs(argv []string) string {
	words := make([]string, len(argv))
	for i, arg := range argv {
		if plainArg().MatchString(arg) && (i > 0 || !strings.Contains(arg, "=")) {
			words[i] = arg
		} else {
			// A quote stands in quotes of the other kind rather than behind
			// a backslash, so that the policy reads scripts that hold quotes.
			words[i] = "'" + strings.ReplaceAll(arg, "'", `'"'"'`) + "'"
		}
	}
	return strings.Join(words, " ")
}

// Todos reads the list that a todo tool was called with.
func Todos(input json.RawMessage) []agent.PlanItem {
	var in struct {
		Todos []struct {
			Content string `json:"content"`
			Text    string `json:"text"`
			Status  string `json:"status"`
		} `json:"todos"`
	}
	_ = Decode(input, &in)
	var items []agent.PlanItem
	for _, t := range in.Todos {
		items = append(items, agent.PlanItem{Text: cmp.Or(t.Content, t.Text), Status: cmp.Or(t.Status, "pending")})
	}
	return items
}

// Relative shows a path as seen from the run's directory.
func Relative(path, cwd string) string {
	if cwd == "" || cwd == "/" {
		return path
	}
	if rest, ok := strings.CutPrefix(path, strings.TrimSuffix(cwd, "/")+"/"); ok {
		return rest
	}
	return path
}

// RelativeCommand does so for the paths in a command.
func RelativeCommand(command, cwd string) string {
	if cwd == "" || cwd == "/" {
		return command
	}
	return strings.ReplaceAll(command, strings.TrimSuffix(cwd, "/")+"/", "")
}
