package acpapi_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// actorRole makes an agent of the test binary, which speaks the protocol on its standard
// input and output and does what its prompts say.
const actorRole = "acpapi-actor-role"

// actor is that agent.
type actor struct {
	in *bufio.Scanner
}

// actorLine is a message that the actor gets.
type actorLine struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params struct {
		Session string `json:"sessionId"`
		Prompt  []struct {
			Text string `json:"text"`
			MIME string `json:"mimeType"`
			Data []byte `json:"data"`
		} `json:"prompt"`
	} `json:"params"`
	Result json.RawMessage `json:"result"`
}

// read returns the next message, or ends the process with its input.
func (a *actor) read() actorLine {
	if !a.in.Scan() {
		os.Exit(0)
	}
	var l actorLine
	if err := json.Unmarshal(a.in.Bytes(), &l); err != nil {
		panic(err)
	}
	return l
}

func (a *actor) answer(l actorLine, result string) {
	fmt.Printf(`{"jsonrpc":"2.0","id":%s,"result":%s}`+"\n", l.ID, result)
}

func (a *actor) update(update string) {
	fmt.Printf(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":%s}}`+"\n", update)
}

func (a *actor) say(text string) {
	b, _ := json.Marshal(text) // a string always encodes
	a.update(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":` + string(b) + `}}`)
}

// ask sends a request of its own and returns the answer; cancelled if a cancellation came
// before or after it.
func (a *actor) ask(method, params string) (result string, cancelled bool) {
	fmt.Printf(`{"jsonrpc":"2.0","id":77,"method":%q,"params":%s}`+"\n", method, params)
	for {
		l := a.read()
		switch {
		case l.Method == "session/cancel":
			cancelled = true
		case string(l.ID) == "77":
			return string(l.Result), cancelled
		}
	}
}

// work is what an agent does in a turn: everything that has an update of its own.
var work = []string{
	`{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"Let me "}}`,
	`{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"think."}}`,
	`{"sessionUpdate":"plan","entries":[{"content":"look","priority":"high","status":"completed"},{"content":"change","priority":"low","status":"in_progress"}]}`,
	`{"sessionUpdate":"tool_call","toolCallId":"c1","title":"cat notes","kind":"execute","status":"pending","rawInput":{"command":"cat notes"}}`,
	`{"sessionUpdate":"tool_call_update","toolCallId":"c1","status":"completed","content":[{"type":"content","content":{"type":"text","text":"one ` + "```" + ` two"}}]}`,
	`{"sessionUpdate":"tool_call","toolCallId":"c2","title":"edit notes","kind":"edit","status":"in_progress","content":[{"type":"diff","path":"/srv/notes","oldText":"a\nb\nc\n","newText":"a\nB\nc\n"}],"locations":[{"path":"/srv/notes"}]}`,
	`{"sessionUpdate":"tool_call_update","toolCallId":"c2","status":"failed"}`,
	`{"sessionUpdate":"usage_update","used":1200,"size":200000,"cost":{"amount":0.25,"currency":"USD"}}`,
}

const permission = `{"sessionId":"s1","toolCall":{"toolCallId":"c9","title":"rm -r build","kind":"execute","status":"pending","rawInput":{"command":"rm -r build"}},` +
	`"options":[{"optionId":"yes","name":"Yes","kind":"allow_once"},{"optionId":"no","name":"No","kind":"reject_once"}]}`

const form = `{"sessionId":"s1","mode":"form","message":"Which colour?","requestedSchema":{"type":"object","properties":{"answer":{"type":"string"}}}}`

// act plays the agent.
func act() {
	a := &actor{in: bufio.NewScanner(os.Stdin)}
	a.in.Buffer(nil, 1<<20)
	said := 0 // prompts in this process
	for {
		l := a.read()
		switch l.Method {
		case "initialize":
			a.answer(l, `{"protocolVersion":1,"agentInfo":{"name":"actor","version":"9"},"agentCapabilities":{"promptCapabilities":{"image":true},"sessionCapabilities":{"resume":{}}}}`)
		case "session/new":
			a.answer(l, `{"sessionId":"s1"}`)
		case "session/resume":
			a.say("resumed " + l.Params.Session)
			a.answer(l, `{}`)
		case "session/prompt":
			said++
			a.play(l, said)
		}
	}
}

// play does what a prompt says.
func (a *actor) play(l actorLine, said int) {
	text := ""
	for _, b := range l.Params.Prompt {
		if text += b.Text; b.Data != nil {
			text += fmt.Sprintf("[%s of %d bytes]", b.MIME, len(b.Data))
		}
	}
	reason := "end_turn"
	switch word := strings.Fields(text)[0]; word {
	case "work":
		for _, u := range work {
			a.update(u)
		}
		a.say("All ")
		a.say("done.")
	case "ask", "form":
		method, params := "session/request_permission", permission
		if word == "form" {
			method, params = "elicitation/create", form
		}
		answer, cancelled := a.ask(method, params)
		a.say("You said " + answer)
		if cancelled {
			reason = "cancelled"
		}
	case "hang":
		a.say("hanging")
		for a.read().Method != "session/cancel" {
		}
		reason = "cancelled"
	case "fail":
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"the model is on fire"}}`+"\n", l.ID)
		return
	case "refuse":
		reason = "refusal"
	default:
		a.say(fmt.Sprintf("%d: %s", said, text))
	}
	a.answer(l, `{"stopReason":"`+reason+`"}`)
}
