// Command approve has a coding agent do something, and answers its permission
// requests with a function instead of a person.
//
//	go run ./approve codex "Create the directory build."
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/local"
)

func main() {
	local.ChildMain()
	if len(os.Args) != 3 {
		log.Fatal("usage: approve AGENT PROMPT")
	}
	if err := run(context.Background(), os.Args[1], os.Args[2]); err != nil {
		log.Fatal(err)
	}
}

// approve decides what the agent may do: nothing that removes something.
func approve(request agent.Approval) agent.Decision {
	for _, word := range strings.Fields(request.Command) {
		if strings.Trim(word, `'"`) == "rm" {
			return agent.Decision{Choice: agent.Deny, Message: "Nothing is removed here."}
		}
	}
	return agent.Decision{Choice: agent.Allow}
}

func run(ctx context.Context, name, prompt string) error {
	backend, err := local.Open("", local.Options{})
	if err != nil {
		return err
	}
	defer backend.Close()

	config := agent.Config{Agent: name, Mode: agent.ModeDuplex}
	if name == agent.Codex {
		config.Permissions, config.Sandbox = "untrusted", "danger-full-access" // ask before commands
	}
	spec := config.Spec()
	// The agent needs its API key, which a policy drops unless it is told not to.
	spec.EnvPolicy = &spool.EnvPolicy{Inherit: "all", IgnoreDefaultExcludes: true}
	conversation, err := spool.Start(ctx, backend, spec)
	if err != nil {
		return err
	}
	defer conversation.Stop(ctx)

	turn, err := conversation.Prompt(ctx, "", spool.Prompt{Text: prompt})
	if err != nil {
		return err
	}
	for e, err := range turn.Events(ctx) {
		if err != nil {
			return err
		}
		if e.Kind == spool.KindAsk {
			if err := answer(ctx, conversation, e); err != nil {
				return err
			}
		}
	}
	done, err := turn.Wait(ctx)
	if err != nil {
		return err
	}
	if done.Outcome != spool.TurnOK {
		return fmt.Errorf("the turn ended with %s: %s", done.Outcome, done.Error)
	}
	fmt.Println(done.Answer)
	return nil
}

// answer answers an ask of the agent.
func answer(ctx context.Context, conversation *spool.Run, e spool.Event) error {
	var ask spool.Ask
	if err := json.Unmarshal(e.Data, &ask); err != nil {
		return err
	}
	if ask.Kind != agent.AskApproval {
		return nil // a question for a person
	}
	var request agent.Approval
	if err := json.Unmarshal(ask.Data, &request); err != nil {
		return err
	}
	decision := approve(request)
	fmt.Printf("%s: %s\n", decision.Choice, request.Command)
	return conversation.Reply(ctx, e.Seq, decision)
}
