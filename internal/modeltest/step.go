package modeltest

import (
	"context"
	"encoding/json"
	"fmt"
	"sync/atomic"
)

// Reply is one answer of the model: items, or a failure.
type Reply struct {
	Items   []Item
	Failure *Failure // replaces the answer
	Cut     bool     // cut the connection in the middle of the answer
	Limited bool     // the answer ends at the token limit

	id string // agents merge answers with the same id
}

// Failure is an error of the API.
type Failure struct {
	Status  int
	Type    string // such as authentication_error
	Message string
	Header  map[string]string
}

// Step answers one request. The context ends with the request.
type Step func(ctx context.Context, r *Request) (Reply, error)

// Say answers with a message. Without calls beside it, the message ends the
// turn.
func Say(text string) Step {
	return reply(Reply{Items: []Item{message(text)}})
}

func message(text string) Item {
	return Item{Type: ItemMessage, Role: RoleAssistant, Content: Content{{Type: "output_text", Text: text}}}
}

func reply(r Reply) Step {
	return func(context.Context, *Request) (Reply, error) {
		r := r
		r.Items = append([]Item(nil), r.Items...)
		return r, nil
	}
}

// Call answers with a call of a function tool; args become its JSON arguments.
func Call(tool string, args any) Step {
	return func(_ context.Context, r *Request) (Reply, error) {
		if r.Tool(tool) == nil {
			return Reply{}, fmt.Errorf("the agent offers no tool %s", tool)
		}
		data, err := json.Marshal(args)
		if err != nil {
			return Reply{}, fmt.Errorf("encode arguments of %s: %w", tool, err)
		}
		return Reply{Items: []Item{{Type: ItemFunctionCall, Name: tool, Arguments: string(data)}}}, nil
	}
}

// CallMCP answers with a call of a tool of an MCP server. Codex offers such tools only
// to a model that searches for them, and takes calls without; the others name the server in
// the name of the tool. A request of those without the tool is for something else, such as a
// title, and gets a text.
func CallMCP(server, tool string, args any) Step {
	return func(ctx context.Context, r *Request) (Reply, error) {
		name := "mcp__" + server + "__" + tool
		if r.Tool(name) != nil {
			return Call(name, args)(ctx, r)
		}
		if r.Dialect != Responses {
			return Say("Nothing.")(ctx, r)
		}
		data, err := json.Marshal(args)
		if err != nil {
			return Reply{}, fmt.Errorf("encode arguments of %s: %w", tool, err)
		}
		return Reply{Items: []Item{{Type: ItemFunctionCall, Namespace: "mcp__" + server, Name: tool, Arguments: string(data)}}}, nil
	}
}

// CallCustom answers with a call of a tool with free form input.
func CallCustom(tool, input string) Step {
	return func(_ context.Context, r *Request) (Reply, error) {
		if r.Tool(tool) == nil {
			return Reply{}, fmt.Errorf("the agent offers no tool %s", tool)
		}
		return Reply{Items: []Item{{Type: ItemCustomCall, Name: tool, Input: input}}}, nil
	}
}

// Together answers with the items of all steps at once.
func Together(steps ...Step) Step {
	return func(ctx context.Context, r *Request) (Reply, error) {
		var all Reply
		for _, s := range steps {
			one, err := s(ctx, r)
			if err != nil {
				return Reply{}, err
			}
			all.Items = append(all.Items, one.Items...)
		}
		return all, nil
	}
}

// The failures that agents must distinguish.
var (
	// Unauthorized refuses the key of the agent.
	Unauthorized = Fail(Failure{Status: 401, Type: "authentication_error", Message: "invalid API key"})
	// UnknownModel reports that the model does not exist.
	UnknownModel = Fail(Failure{Status: 404, Type: "not_found_error", Message: "the model does not exist"})
	// RateLimited asks the agent to retry at once.
	RateLimited = Fail(Failure{
		Status: 429, Type: "rate_limit_error", Message: "rate limit reached",
		Header: map[string]string{"Retry-After": "0"},
	})
	// Overloaded reports that the API is overloaded.
	Overloaded = Fail(Failure{Status: 529, Type: "overloaded_error", Message: "overloaded"})
)

// Fail answers with an error of the API.
func Fail(f Failure) Step { return reply(Reply{Failure: &f}) }

// TokenLimit answers with the beginning of a message that ends at the token
// limit.
func TokenLimit(text string) Step { return reply(Reply{Items: []Item{message(text)}, Limited: true}) }

// Cut sends the beginning of a message and cuts the connection.
func Cut(text string) Step { return reply(Reply{Items: []Item{message(text)}, Cut: true}) }

// Then returns a step that plays s n times, then next.
func (s Step) Then(n int, next Step) Step {
	var played atomic.Int64
	return func(ctx context.Context, r *Request) (Reply, error) {
		if played.Add(1) <= int64(n) {
			return s(ctx, r)
		}
		return next(ctx, r)
	}
}

// After returns a step that answers only when gate is closed or sends.
func (s Step) After(gate <-chan struct{}) Step {
	return s.When(func(ctx context.Context) error {
		select {
		case <-gate:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
}

// When returns a step that answers only when ready has returned. It makes the
// answer first: a step that fails does not wait.
func (s Step) When(ready func(context.Context) error) Step {
	return func(ctx context.Context, r *Request) (Reply, error) {
		answer, err := s(ctx, r)
		if err != nil {
			return Reply{}, err
		}
		if err := ready(ctx); err != nil {
			return Reply{}, fmt.Errorf("wait before answer: %w", err)
		}
		return answer, nil
	}
}
