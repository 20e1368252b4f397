package httpapi_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/agents"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/wire/httpapi"
)

// carelessAgent speaks the Agent Client Protocol: it asks whether it may remove a
// directory, and ends its turn when it knows.
const carelessAgent = `while read -r line; do
	id=$(printf '%s' "$line" | sed 's/.*"id":\([^,}]*\).*/\1/')
	case $line in
	*'"initialize"'*) echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"protocolVersion\":1,\"agentCapabilities\":{}}}" ;;
	*'"session/new"'*) echo "{\"jsonrpc\":\"2.0\",\"id\":$id,\"result\":{\"sessionId\":\"s1\"}}" ;;
	*'"session/prompt"'*)
		prompt=$id
		echo '{"jsonrpc":"2.0","id":77,"method":"session/request_permission","params":{"sessionId":"s1","toolCall":{"toolCallId":"c1","title":"rm -r build","kind":"execute","status":"pending","rawInput":{"command":"rm -r build"}},"options":[{"optionId":"yes","name":"Yes","kind":"allow_once"},{"optionId":"no","name":"No","kind":"reject_once"}]}}' ;;
	*'"result"'*) echo "{\"jsonrpc\":\"2.0\",\"id\":$prompt,\"result\":{\"stopReason\":\"end_turn\"}}" ;;
	esac
done`

// TestDangerousAsk allows what a policy calls dangerous: only with the command typed again,
// on each way to answer. A refusal needs nothing.
func TestDangerousAsk(t *testing.T) {
	state := t.TempDir()
	h, err := host.Open(host.Options{Dir: t.TempDir(), Engines: map[string]host.NewEngine{
		agent.Engine: func(owner string) (engine.Engine, error) {
			return agents.New(agents.Options{Owner: owner, Dir: state})
		},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	b := serveSockets(t, httpapi.Options{Backend: h})
	ctx := t.Context()
	config, err := json.Marshal(agent.Config{Agent: agent.ACP, Command: []string{"sh", "-c", carelessAgent},
		Policy: &agent.Policy{Rules: []agent.Rule{{Verdict: agent.VerdictAsk, Commands: []string{"rm"}, Retype: true}}}})
	if err != nil {
		t.Fatal(err)
	}
	info, err := b.Start(ctx, spool.Spec{Engine: agent.Engine, Cwd: t.TempDir(), Config: config})
	if err != nil {
		t.Fatal(err)
	}
	run := "/v1/runs/" + string(info.ID)
	asked := func() (turn, ask spool.Seq) {
		t.Helper()
		var begun httpapi.TurnInfo
		if err := b.call(ctx, "POST", run+"/turns", nil, httpapi.TurnRequest{Prompt: &spool.Prompt{Text: "Clean up."}}, &begun); err != nil {
			t.Fatal(err)
		}
		for e, err := range b.Follow(ctx, info.ID, begun.Seq) {
			if err != nil || e.Kind == spool.KindDone {
				t.Fatalf("nothing was asked: %v, %s", err, e.Data)
			}
			var a spool.Ask
			if e.OpensAsk() && json.Unmarshal(e.Data, &a) == nil {
				if a.RetypeText() != "rm -r build" {
					t.Fatalf("it asks %s", e.Data)
				}
				return begun.Seq, e.Seq
			}
		}
		t.Fatal("nothing was asked")
		return 0, 0
	}
	answer := func(ask spool.Seq, r httpapi.AnswerRequest) error {
		return b.call(ctx, "POST", fmt.Sprintf("%s/asks/%d", run, ask), nil, r, nil)
	}
	ended := func(turn spool.Seq) {
		t.Helper()
		var info httpapi.TurnInfo
		if err := b.call(ctx, "GET", fmt.Sprintf("%s/turns/%d?wait_ms=50000", run, turn), nil, nil, &info); err != nil || info.Done == nil {
			t.Fatalf("the turn is %+v, %v", info, err)
		}
	}

	turn, ask := asked()
	yes := json.RawMessage(`"yes"`)
	for _, r := range []httpapi.AnswerRequest{{Data: yes}, {Data: yes, Retype: "rm -r"}, {Data: json.RawMessage(`{"choice":"allow"}`)}} {
		said, ok := answer(ask, r).(*answered)
		if !ok || said.problem.Code != "not_retyped" || said.problem.Status != 422 {
			t.Errorf("%s with %q: %+v", r.Data, r.Retype, said)
		}
	}
	s := openSocket(t, b.url, "", "")
	if m := s.ask("run/answer", fmt.Sprintf(`{"run":%q,"ask":%d,"data":"yes"}`, info.ID, ask)); m.Error == nil || m.Error.Data.Name != "not_retyped" {
		t.Errorf("on the socket: %+v", m.Error)
	}
	plain, err := json.Marshal(spool.Answer{Ask: ask, Data: yes})
	if err != nil {
		t.Fatal(err)
	}
	said, ok := b.call(ctx, "POST", run+"/input", nil, spool.Input{Kind: spool.InputAnswer, Data: plain}, nil).(*answered)
	if !ok || said.problem.Code != "not_retyped" {
		t.Errorf("as an input: %+v", said)
	}
	if info, err := b.Stat(ctx, info.ID); err != nil || info.Asks == nil || info.Asks.Count != 1 {
		t.Errorf("the ask is not open: %+v, %v", info.Asks, err)
	}
	if err := answer(ask, httpapi.AnswerRequest{Data: yes, Retype: " rm -r  build"}); err != nil {
		t.Error(err)
	}
	ended(turn)

	turn, ask = asked()
	if err := answer(ask, httpapi.AnswerRequest{Data: json.RawMessage(`"no"`)}); err != nil {
		t.Errorf("a refusal: %v", err)
	}
	ended(turn)
	if err := b.Control(ctx, info.ID, spool.Control{Op: spool.ControlKill}); err != nil {
		t.Error(err)
	}
}
