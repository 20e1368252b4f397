package agent_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// A run of codex that may run the tests without asking, and must not change the
// configuration of git.
func ExampleConfig_Spec() {
	config := agent.Config{
		Agent: agent.Codex,
		Policy: &agent.Policy{Rules: []agent.Rule{
			{Verdict: agent.VerdictAllow, Commands: []string{"go test"}},
			{Verdict: agent.VerdictDeny, Paths: []string{".git/**"}, Reason: "Leave git alone."},
		}},
		Budget:        agent.Budget{Tokens: 200_000},
		TurnTimeoutMs: 600_000,
	}
	spec := config.Spec()
	spec.Cwd = "/home/me/project"
	fmt.Println(spec.Engine)
	fmt.Println(string(spec.Config))
	// Output:
	// agent
	// {"agent":"codex","policy":{"rule":[{"verdict":"allow","command":["go test"]},{"verdict":"deny","path":[".git/**"],"reason":"Leave git alone."}]},"budget":{"tokens":200000},"turn_timeout_ms":600000}
}

// decide allows what reads, and nothing else.
func decide(request agent.Approval) agent.Decision {
	if request.Kind == agent.ActionRead || strings.HasPrefix(request.Command, "cat ") {
		return agent.Decision{Choice: agent.Allow}
	}
	return agent.Decision{Choice: agent.Deny, Message: "Only read files."}
}

// A Go function decides what an agent may do.
func ExampleDecision() {
	for _, request := range []agent.Approval{
		{Kind: agent.ActionCommand, Command: "cat notes.txt"},
		{Kind: agent.ActionFileChange, Paths: []string{"notes.txt"}},
	} {
		d := decide(request)
		fmt.Printf("%s: %s %q\n", request.Kind, d.Choice, d.Message)
	}
	// Output:
	// command: allow ""
	// file_change: deny "Only read files."
}

// Answer the permission requests of a turn while it runs. The backend is that of
// package local, or of package client.
func ExampleApproval() {
	approve := func(ctx context.Context, backend spool.Backend) (spool.Done, error) {
		run, err := spool.Start(ctx, backend, agent.Config{Agent: agent.Claude}.Spec())
		if err != nil {
			return spool.Done{}, err
		}
		defer run.Stop(ctx)
		turn, err := run.Prompt(ctx, "", spool.Prompt{Text: "What is in notes.txt?"})
		if err != nil {
			return spool.Done{}, err
		}
		for e, err := range turn.Events(ctx) {
			if err != nil {
				return spool.Done{}, err
			}
			var ask spool.Ask
			var request agent.Approval
			if !e.OpensAsk() || json.Unmarshal(e.Data, &ask) != nil ||
				ask.Kind != agent.AskApproval || json.Unmarshal(ask.Data, &request) != nil {
				continue
			}
			if err := run.Reply(ctx, e.Seq, decide(request)); err != nil {
				return spool.Done{}, err
			}
		}
		return turn.Wait(ctx)
	}
	_ = approve
}

// Show the commands that an agent ran.
func ExampleAction() {
	events := []spool.Event{
		{Kind: agent.KindAction, Data: []byte(`{"id":"c1","kind":"command","phase":"started","title":"go test"}`)},
		{Kind: agent.KindMessage, Data: []byte(`{"text":"The tests fail."}`)},
		{Kind: agent.KindAction, Data: []byte(`{"id":"c1","kind":"command","phase":"completed","title":"go test","ok":false,"exit_code":1}`)},
	}
	for _, e := range events {
		var a agent.Action
		if e.Kind != agent.KindAction || json.Unmarshal(e.Data, &a) != nil || a.Phase != agent.ActionCompleted {
			continue
		}
		if a.Kind == agent.ActionCommand && a.ExitCode != nil {
			fmt.Printf("%s: exit %d\n", a.Title, *a.ExitCode)
		}
	}
	// Output:
	// go test: exit 1
}
