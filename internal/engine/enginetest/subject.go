package enginetest

import (
	"maps"
	"slices"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/python"
)

// Subject is an engine under test.
type Subject struct {
	// Engine is its name.
	Engine string
	// Open makes an engine and arranges for its end.
	Open func(t *testing.T) engine.Engine
	// Spec returns the spec of a run that lives until it is ended.
	Spec func(t *testing.T) spool.Spec
	// Turns says how to make turns do things.
	Turns Turns
	// Without names the cases, or whole groups of them, that the engine
	// cannot have, and why.
	Without map[string]string
	// Only names the cases to run, for an engine whose runs take long to start
	// and whose other cases run elsewhere. Nil is all.
	Only []string
}

// Turns are inputs that begin turns of a run. Each returns the payload.
type Turns struct {
	// Kind is that of the inputs.
	Kind spool.InputKind
	// Quick ends well by itself.
	Quick func() any
	// Slow outputs something and then runs until it is ended, at the latest
	// after the timeout if there is one.
	Slow func(timeoutMs int64) any
	// Ask asks one question and ends well when it gets the answer.
	Ask func() any
	// Answer is that answer.
	Answer any
}

// The groups of cases.
const (
	GroupLife  = "life"  // what every run has
	GroupArgv  = "argv"  // runs that are a process with an argv
	GroupTurns = "turns" // runs that live on and take turns
)

type testCase struct {
	group, name string
	test        func(t *testing.T, s *Subject)
}

// exceptions are the cases and groups that each engine does without. A new
// engine, or a new exception, has to be entered here, too.
var exceptions = map[string][]string{
	spool.EngineProcess:  {GroupTurns},
	python.EngineKernel:  {GroupArgv},
	python.EngineSandbox: {GroupArgv},
	agent.Engine:         {GroupArgv},
}

// Run holds an engine to what every engine must do.
func Run(t *testing.T, s Subject) {
	cases := slices.Concat(lifeCases, argvCases(), turnCases)
	without := slices.Sorted(maps.Keys(s.Without))
	if want := exceptions[s.Engine]; !slices.Equal(without, want) {
		t.Errorf("engine %q does without %q, and may do without %q", s.Engine, without, want)
	}
	for name, why := range s.Without {
		if why == "" {
			t.Errorf("why does engine %q do without %q?", s.Engine, name)
		}
		if !slices.ContainsFunc(cases, func(c testCase) bool { return c.group == name || c.group+"/"+c.name == name }) {
			t.Errorf("there is no case %q", name)
		}
	}
	for _, name := range s.Only {
		if !slices.ContainsFunc(cases, func(c testCase) bool { return c.group+"/"+c.name == name }) {
			t.Errorf("there is no case %q", name)
		}
	}
	for _, group := range []string{GroupLife, GroupArgv, GroupTurns} {
		if _, ok := s.Without[group]; ok {
			continue
		}
		t.Run(group, func(t *testing.T) {
			for _, c := range cases {
				name := group + "/" + c.name
				if _, ok := s.Without[name]; c.group == group && !ok && (s.Only == nil || slices.Contains(s.Only, name)) {
					t.Run(c.name, func(t *testing.T) { c.test(t, &s) })
				}
			}
		})
	}
}
