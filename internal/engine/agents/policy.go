package agents

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// Approval is the data of an ask of kind [spool.AskApproval]: what an agent
// wants to do. The ask's name is its kind.
type Approval struct {
	// Action is the id of the action that waits for the answer.
	Action string           `json:"action,omitempty"`
	Kind   agent.ActionKind `json:"kind"`
	Tool   string           `json:"tool,omitempty"` // the agent's name for it
	// Command is a line for a shell.
	Command string   `json:"command,omitempty"`
	Cwd     string   `json:"cwd,omitempty"`
	Paths   []string `json:"paths,omitempty"` // of the files it is about
	Reason  string   `json:"reason,omitempty"`
	// Input is what the agent gives to the tool, in its own words.
	Input   json.RawMessage    `json:"input,omitempty"`
	Changes []agent.FileChange `json:"changes,omitempty"`
}

// The kinds of approval besides the kinds of action.
const (
	ApprovePermissions agent.ActionKind = "permissions" // more rights for the rest of the turn or session
	ApprovePlan        agent.ActionKind = "plan"        // to begin with what it planned
)

// Verdict is what a policy says about an approval.
type Verdict string

// The verdicts.
const (
	VerdictAllow Verdict = "allow"
	VerdictDeny  Verdict = "deny"
	VerdictAsk   Verdict = "ask" // somebody has to say
)

// Policy answers approvals before anybody is asked. The first rule that
// matches decides. As a file it is TOML:
//
//	default = "ask"     # what no rule matches: ask, allow or deny
//	deadline = "10m"    # what nobody answered by then is denied
//
//	[[rule]]
//	verdict = "allow"
//	command = ["go test", "git status"]
//
//	[[rule]]
//	verdict = "deny"
//	kind = ["file_change"]
//	path = ["/etc/**", ".git/**"]
//	reason = "configuration is ours to change"
type Policy struct {
	Default  Verdict  `toml:"default" json:"default,omitempty"`
	Deadline Deadline `toml:"deadline" json:"deadline,omitempty"`
	Rules    []Rule   `toml:"rule" json:"rule,omitempty"`
}

// Deadline is a time span, written as in "90s".
type Deadline time.Duration

// UnmarshalText reads it.
func (d *Deadline) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	if err == nil && v <= 0 {
		err = fmt.Errorf("%q is not longer than nothing", b)
	}
	*d = Deadline(v)
	return err
}

// MarshalText writes it.
func (d Deadline) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// Rule matches an approval if every condition that it has holds; one with
// none matches all. A condition holds if any of its values does.
//
// A rule that allows must be right about everything the agent is about to do:
// all files, all commands of a line, and nothing in it that a shell would do
// besides. A rule that denies or asks is content with one of them.
type Rule struct {
	Verdict Verdict `toml:"verdict" json:"verdict"`
	// Kinds are those of [Approval.Kind].
	Kinds []string `toml:"kind" json:"kind,omitempty"`
	// Commands are the first words of command lines.
	Commands []string `toml:"command" json:"command,omitempty"`
	// Paths are patterns of files, with * within a name and ** across
	// names. They begin at the working directory if they are relative.
	Paths []string `toml:"path" json:"path,omitempty"`
	// Tools are patterns of [Approval.Tool], such as "mcp__github__*".
	Tools []string `toml:"tool" json:"tool,omitempty"`
	// Reason is told to the agent when it is denied.
	Reason string `toml:"reason" json:"reason,omitempty"`
}

// ErrPolicy says that a policy makes no sense.
var ErrPolicy = errors.New("invalid policy")

// MaxPolicy bounds a policy file.
const MaxPolicy = 1 << 20

// ReadPolicy reads a policy file. Keys it does not know are errors, since a
// rule that is half understood protects nothing.
func ReadPolicy(file string) (*Policy, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, MaxPolicy+1))
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	if len(b) > MaxPolicy {
		return nil, fmt.Errorf("%w: %s is larger than %d bytes", ErrPolicy, file, MaxPolicy)
	}
	p, err := ParsePolicy(string(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

// ParsePolicy reads a policy in TOML.
func ParsePolicy(text string) (*Policy, error) {
	p := new(Policy)
	meta, err := toml.Decode(text, p)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return nil, fmt.Errorf("%w: unknown key %q", ErrPolicy, unknown[0].String())
	}
	return p, p.check()
}

// decodePolicy reads a policy of a [Config], which is JSON.
func decodePolicy(b json.RawMessage) (*Policy, error) {
	p := new(Policy)
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	if err := dec.Decode(p); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrPolicy, err)
	}
	return p, p.check()
}

func (p *Policy) check() error {
	switch p.Default {
	case "":
		p.Default = VerdictAsk
	case VerdictAllow, VerdictDeny, VerdictAsk:
	default:
		return fmt.Errorf("%w: default is %q", ErrPolicy, p.Default)
	}
	for i, r := range p.Rules {
		fail := func(format string, args ...any) error {
			return fmt.Errorf("%w: rule %d: %s", ErrPolicy, i+1, fmt.Sprintf(format, args...))
		}
		switch r.Verdict {
		case VerdictAllow, VerdictDeny, VerdictAsk:
		default:
			return fail("verdict is %q", r.Verdict)
		}
		for _, c := range r.Commands {
			if len(strings.Fields(c)) == 0 {
				return fail("an empty command would match every line")
			}
		}
		for _, pattern := range r.Paths {
			if pattern == "" {
				return fail("an empty path matches nothing")
			}
		}
		for _, pattern := range r.Tools {
			if _, err := path.Match(pattern, ""); err != nil || pattern == "" {
				return fail("tool pattern %q", pattern)
			}
		}
		for _, k := range r.Kinds {
			if k == "" {
				return fail("an empty kind matches nothing")
			}
		}
	}
	return nil
}

// Decide says what the policy answers to an approval and which rule said so,
// counted from one; rule zero is the default. cwd is where relative patterns
// and paths begin.
func (p *Policy) Decide(a Approval, cwd string) (v Verdict, rule int) {
	if a.Cwd == "" {
		a.Cwd = cwd
	}
	for i := range p.Rules {
		if p.Rules[i].matches(&a, cwd) {
			return p.Rules[i].Verdict, i + 1
		}
	}
	return p.Default, 0
}

func (r *Rule) matches(a *Approval, cwd string) bool {
	if len(r.Kinds) > 0 && !slices.Contains(r.Kinds, string(a.Kind)) {
		return false
	}
	if len(r.Tools) > 0 && !slices.ContainsFunc(r.Tools, func(pattern string) bool {
		ok, err := path.Match(pattern, a.Tool)
		return ok && err == nil
	}) {
		return false
	}
	if len(r.Commands) > 0 && !r.matchesCommand(a.Command) {
		return false
	}
	return len(r.Paths) == 0 || r.matchesPaths(a, cwd)
}

func (r *Rule) matchesCommand(line string) bool {
	if strings.TrimSpace(line) == "" {
		return false
	}
	commands, whole := splitCommands(line)
	if r.Verdict != VerdictAllow {
		return slices.ContainsFunc(commands, func(words []string) bool { return r.touches(words, whole) })
	}
	if !whole || len(commands) == 0 {
		return false
	}
	for _, words := range commands {
		if !slices.ContainsFunc(r.Commands, func(c string) bool { return hasWords(words, strings.Fields(c), false) }) {
			return false
		}
	}
	return true
}

// touches reports whether a command may be one that a denying rule means. In
// a line that was not understood it may stand anywhere.
func (r *Rule) touches(words []string, whole bool) bool {
	starts := wrapped(words)
	if !whole {
		starts = starts[:0]
		for i := range words {
			starts = append(starts, words[i:])
		}
	}
	return slices.ContainsFunc(r.Commands, func(c string) bool {
		prefix := strings.Fields(c)
		return slices.ContainsFunc(starts, func(w []string) bool { return hasWords(w, prefix, true) })
	})
}

// hasWords reports whether words begin with prefix. A denied program is
// denied wherever it lies; an allowed one is that of the name alone.
func hasWords(words, prefix []string, base bool) bool {
	if len(words) < len(prefix) {
		return false
	}
	for i, p := range prefix {
		if words[i] != p && !(i == 0 && base && path.Base(words[i]) == p) {
			return false
		}
	}
	return true
}

// policyJudge is a policy at work in a run.
type policyJudge struct {
	policy *Policy
	cwd    string
}

// decide implements judge.
func (j policyJudge) decide(ask spool.Ask) (d agent.Decision, by string, ok bool) {
	if ask.Kind != spool.AskApproval {
		return d, "", false
	}
	var a Approval
	if err := json.Unmarshal(ask.Data, &a); err != nil {
		// What cannot be read cannot be judged.
		return d, "", false
	}
	v, rule := j.policy.Decide(a, j.cwd)
	by = "policy: default"
	if rule > 0 {
		by = fmt.Sprintf("policy: rule %d", rule)
		d.Message = j.policy.Rules[rule-1].Reason
	}
	switch v {
	case VerdictAllow:
		return agent.Decision{Choice: agent.Allow}, by, true
	case VerdictDeny:
		d.Choice = agent.Deny
		if d.Message == "" {
			d.Message = "The policy of this run does not allow it."
		}
		return d, by, true
	}
	return agent.Decision{}, "", false
}
