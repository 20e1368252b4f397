// Package policy reads the rules of an [agent.Policy] and decides with them what
// an agent may do.
package policy

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/BurntSushi/toml"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/strict"
)

// ErrInvalid says that a policy makes no sense.
var ErrInvalid = errors.New("invalid policy")

// MaxBytes bounds a policy file.
const MaxBytes = 1 << 20

// Read reads a policy file. Keys it does not know are errors, since a
// rule that is half understood protects nothing.
func Read(file string) (*agent.Policy, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, MaxBytes+1))
	if err != nil {
		return nil, fmt.Errorf("read policy: %w", err)
	}
	if len(b) > MaxBytes {
		return nil, fmt.Errorf("%w: %s is larger than %d bytes", ErrInvalid, file, MaxBytes)
	}
	p, err := Parse(string(b))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return p, nil
}

// file is a policy as people write it.
type file struct {
	Default  agent.Verdict `toml:"default"`
	Deadline string        `toml:"deadline"`
	Rules    []agent.Rule  `toml:"rule"`
}

// Parse reads a policy in TOML.
func Parse(text string) (*agent.Policy, error) {
	var f file
	meta, err := toml.Decode(text, &f)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	if unknown := meta.Undecoded(); len(unknown) > 0 {
		return nil, unknownKey(unknown[0])
	}
	p := &agent.Policy{Default: f.Default, Rules: f.Rules}
	if f.Deadline != "" {
		d, err := time.ParseDuration(f.Deadline)
		if err != nil {
			return nil, fmt.Errorf("%w: deadline: %w", ErrInvalid, err)
		}
		if d < time.Millisecond {
			return nil, fmt.Errorf("%w: deadline %q is not longer than zero", ErrInvalid, f.Deadline)
		}
		p.DeadlineMs = d.Milliseconds()
	}
	return p, Check(p)
}

// unknownKey names a key that is not one of a policy, and the similar one.
func unknownKey(key toml.Key) error {
	of := reflect.TypeFor[file]()
	if len(key) > 1 {
		of = reflect.TypeFor[agent.Rule]()
	}
	var names []string
	for f := range of.Fields() {
		names = append(names, f.Tag.Get("toml"))
	}
	if near, ok := strict.Nearest(key[len(key)-1], names); ok {
		return fmt.Errorf("%w: unknown key %q; did you mean %q?", ErrInvalid, key.String(), near)
	}
	return fmt.Errorf("%w: unknown key %q; the keys are %s", ErrInvalid, key.String(), strings.Join(names, ", "))
}

// Check returns [ErrPolicy] if a policy has a value that means nothing.
func Check(p *agent.Policy) error {
	if p.DeadlineMs < 0 {
		return fmt.Errorf("%w: the deadline is negative", ErrInvalid)
	}
	switch p.Default {
	case "", agent.VerdictAllow, agent.VerdictDeny, agent.VerdictAsk:
	default:
		return fmt.Errorf("%w: default is %q", ErrInvalid, p.Default)
	}
	for i, r := range p.Rules {
		fail := func(format string, args ...any) error {
			return fmt.Errorf("%w: rule %d: %s", ErrInvalid, i+1, fmt.Sprintf(format, args...))
		}
		switch r.Verdict {
		case agent.VerdictAllow, agent.VerdictDeny, agent.VerdictAsk:
		default:
			return fail("verdict is %q", r.Verdict)
		}
		if r.Retype && r.Verdict != agent.VerdictAsk {
			return fail("retype is for the verdict ask, not %s", r.Verdict)
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
func Decide(p *agent.Policy, a agent.Approval, cwd string) (v agent.Verdict, rule int) {
	if a.Cwd == "" {
		a.Cwd = cwd
	}
	for i := range p.Rules {
		if matches(&p.Rules[i], &a, cwd) {
			return p.Rules[i].Verdict, i + 1
		}
	}
	return cmp.Or(p.Default, agent.VerdictAsk), 0
}

func matches(r *agent.Rule, a *agent.Approval, cwd string) bool {
	if len(r.Kinds) > 0 && !slices.Contains(r.Kinds, string(a.Kind)) {
		return false
	}
	if len(r.Tools) > 0 && !slices.ContainsFunc(r.Tools, func(pattern string) bool {
		ok, err := path.Match(pattern, a.Tool)
		return ok && err == nil
	}) {
		return false
	}
	if len(r.Commands) > 0 && !matchesCommand(r, a.Command) {
		return false
	}
	return len(r.Paths) == 0 || matchesPaths(r, a, cwd)
}

// matchesCommand reports whether a rule matches a line for a shell. An allow rule
// has to name every command of a line that is understood and touches no
// files otherwise. Any other rule matches if one command may be one that it names,
// and every line that is not understood.
func matchesCommand(r *agent.Rule, line string) bool {
	if strings.TrimSpace(line) == "" {
		return false
	}
	s := parse(line)
	if r.Verdict != agent.VerdictAllow {
		return slices.ContainsFunc(r.Commands, func(named string) bool { return deniesScript(s, strings.Fields(named), maxShells) })
	}
	if !s.understood || s.files || len(s.commands) == 0 {
		return false
	}
	for _, c := range s.commands {
		if !slices.ContainsFunc(r.Commands, func(named string) bool { return allows(c, strings.Fields(named)) }) {
			return false
		}
	}
	return true
}

// Judge is a policy at work in a run.
type Judge struct {
	Policy *agent.Policy
	Cwd    string
}

// kindNetwork is the kind of an ask about a host.
const kindNetwork = "network"

// decideHost is [Decide] for a host and its port. Only rules that name the kind count: a
// rule for what an agent asks must not open the walls around it.
func decideHost(p *agent.Policy, host string) (v agent.Verdict, rule int) {
	a := agent.Approval{Kind: kindNetwork, Tool: host}
	for i := range p.Rules {
		if r := &p.Rules[i]; slices.Contains(r.Kinds, kindNetwork) && matches(r, &a, "") {
			return r.Verdict, i + 1
		}
	}
	return agent.VerdictAsk, 0
}

// Retype reports whether a person who allows what is asked has to type it again.
func (j Judge) Retype(ask spool.Ask) bool {
	var a agent.Approval
	if j.Policy == nil || ask.Kind != agent.AskApproval || json.Unmarshal(ask.Data, &a) != nil {
		return false
	}
	v, rule := Decide(j.Policy, a, j.Cwd)
	return v == agent.VerdictAsk && rule > 0 && j.Policy.Rules[rule-1].Retype
}

// Decide implements judge.
func (j Judge) Decide(ask spool.Ask) (d agent.Decision, by string, ok bool) {
	var v agent.Verdict
	var rule int
	switch ask.Kind {
	case agent.AskApproval:
		var a agent.Approval
		if err := json.Unmarshal(ask.Data, &a); err != nil {
			// What cannot be read cannot be judged.
			return d, "", false
		}
		v, rule = Decide(j.Policy, a, j.Cwd)
	case kindNetwork:
		v, rule = decideHost(j.Policy, ask.Name)
	default:
		return d, "", false
	}
	by = "policy: default"
	if rule > 0 {
		by = fmt.Sprintf("policy: rule %d", rule)
		d.Message = j.Policy.Rules[rule-1].Reason
	}
	switch v {
	case agent.VerdictAllow:
		return agent.Decision{Choice: agent.Allow}, by, true
	case agent.VerdictDeny:
		d.Choice = agent.Deny
		if d.Message == "" {
			d.Message = "The policy of this run does not allow it."
		}
		return d, by, true
	}
	return agent.Decision{}, "", false
}
