package agents

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// acpRole makes an agent of the test binary, which plays one of the scenes of
// acpScenes on its standard input and output.
const acpRole = "acp-agent-role"

func init() {
	if len(os.Args) > 2 && os.Args[1] == acpRole {
		a := &acpActor{in: bufio.NewScanner(os.Stdin)}
		a.in.Buffer(nil, 1<<20)
		acpScenes[os.Args[2]](a)
		os.Exit(0)
	}
}

// acpActor is the other end of the protocol, as simple as it can be.
type acpActor struct {
	in *bufio.Scanner
}

type acpLine struct {
	ID     json.RawMessage `json:"id"`
	Method string          `json:"method"`
	Params json.RawMessage `json:"params"`
	Result json.RawMessage `json:"result"`
	Error  json.RawMessage `json:"error"`
}

// read returns the next line, or ends the process with its input.
func (a *acpActor) read() acpLine {
	if !a.in.Scan() {
		os.Exit(0)
	}
	var l acpLine
	if err := json.Unmarshal(a.in.Bytes(), &l); err != nil {
		panic(err)
	}
	return l
}

// expect reads a call of a method.
func (a *acpActor) expect(method string) acpLine {
	l := a.read()
	if l.Method != method {
		panic(fmt.Sprintf("got %s %s, want %s", l.Method, l.Result, method))
	}
	return l
}

func (a *acpActor) line(s string) { fmt.Println(s) }

func (a *acpActor) answer(l acpLine, result string) {
	a.line(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"result":%s}`, l.ID, result))
}

func (a *acpActor) fail(l acpLine, code int, text string) {
	a.line(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":%d,"message":%q}}`, l.ID, code, text))
}

func (a *acpActor) update(u string) {
	a.line(fmt.Sprintf(`{"jsonrpc":"2.0","method":"session/update","params":{"sessionId":"s1","update":%s}}`, u))
}

func (a *acpActor) says(text string) {
	a.update(fmt.Sprintf(`{"sessionUpdate":"agent_message_chunk","content":{"type":"text","text":%q}}`, text))
}

const acpOptions = `[{"optionId":"yes","name":"Yes","kind":"allow_once"},{"optionId":"always","name":"Always","kind":"allow_always"},{"optionId":"no","name":"No","kind":"reject_once"}]`

// asks asks for a permission and returns at once.
func (a *acpActor) asks(id, call, command, options string) {
	a.line(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"method":"session/request_permission","params":{"sessionId":"s1","options":%s,"toolCall":{"toolCallId":%q,"title":%q,"kind":"execute","status":"pending","rawInput":{"command":%q}}}}`,
		id, options, call, command, command))
}

// told is the outcome that an answer to a permission says.
func told(l acpLine) string {
	var r struct {
		Outcome struct {
			Outcome string `json:"outcome"`
			Option  string `json:"optionId"`
		} `json:"outcome"`
	}
	if err := json.Unmarshal(l.Result, &r); err != nil {
		panic(err)
	}
	return r.Outcome.Outcome + r.Outcome.Option
}

// begin does what comes before the first prompt of a new session.
func (a *acpActor) begin(initialized string) acpLine {
	a.answer(a.expect("initialize"), initialized)
	a.answer(a.expect("session/new"), `{"sessionId":"s1"}`)
	return a.expect("session/prompt")
}

const acpV1 = `{"protocolVersion":1,"agentInfo":{"name":"actor","version":"9"},"agentCapabilities":{}}`

// acpScenes are what the agent can play.
var acpScenes = map[string]func(*acpActor){
	"load": func(a *acpActor) {
		a.answer(a.expect("initialize"), `{"protocolVersion":1,"agentCapabilities":{"loadSession":true}}`)
		load := a.expect("session/load")
		a.update(`{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"old question"}}`)
		a.update(`{"sessionUpdate":"agent_thought_chunk","content":{"type":"text","text":"old thought"}}`)
		a.says("old ")
		a.says("answer")
		a.update(`{"sessionUpdate":"tool_call","toolCallId":"c1","title":"ls","kind":"execute","status":"pending"}`)
		a.update(`{"sessionUpdate":"tool_call_update","toolCallId":"c1","status":"completed","content":[{"type":"content","content":{"type":"text","text":"a.go"}}]}`)
		a.update(`{"sessionUpdate":"tool_call","toolCallId":"c2","title":"never told","kind":"read","status":"in_progress"}`)
		a.update(`{"sessionUpdate":"plan","entries":[{"content":"old step","priority":"high","status":"completed"}]}`)
		a.answer(load, `null`)
		// Some tell the rest after that.
		asked := a.expect("_spool/settled")
		a.says("old end")
		a.fail(asked, -32601, "Method not found")
		a.fail(a.expect("_spool/settled"), -32601, "Method not found")
		p := a.expect("session/prompt")
		a.update(`{"sessionUpdate":"user_message_chunk","content":{"type":"text","text":"new question"}}`)
		a.says("new answer")
		a.answer(p, `{"stopReason":"end_turn"}`)
		a.read()
	},
	"images": func(a *acpActor) {
		p := a.begin(`{"protocolVersion":1,"agentInfo":{"name":"actor","version":"9"},"agentCapabilities":{"promptCapabilities":{"image":true}}}`)
		a.says(string(p.Params))
		a.answer(p, `{"stopReason":"end_turn"}`)
		a.read()
	},
	"no_images": func(a *acpActor) {
		a.answer(a.expect("initialize"), `{"protocolVersion":1,"agentInfo":{"name":"actor","version":"9"},"agentCapabilities":{"promptCapabilities":{"image":false}}}`)
		a.answer(a.expect("session/new"), `{"sessionId":"s1"}`)
		p := a.expect("session/prompt")
		a.says("only text")
		a.answer(p, `{"stopReason":"end_turn"}`)
		a.read()
	},
	"resume": func(a *acpActor) {
		a.answer(a.expect("initialize"), `{"protocolVersion":1,"agentCapabilities":{"loadSession":true,"sessionCapabilities":{"resume":{}}}}`)
		a.answer(a.expect("session/resume"), `{}`)
		p := a.expect("session/prompt")
		a.says("resumed")
		a.answer(p, `{"stopReason":"end_turn"}`)
		a.read()
	},
	"v2": func(a *acpActor) {
		a.answer(a.expect("initialize"), `{"protocolVersion":2,"capabilities":{"session":{"list":{}}},"info":{"name":"actor2","version":"2"}}`)
		a.answer(a.expect("session/new"), `{"sessionId":"s1"}`)
		for range 2 {
			a.answer(a.expect("session/prompt"), `{}`)
			a.update(`{"sessionUpdate":"state_update","state":"running"}`)
			a.update(`{"sessionUpdate":"user_message","messageId":"u1","content":[{"type":"text","text":"hi"}]}`)
			a.update(`{"sessionUpdate":"agent_message_chunk","messageId":"m1","content":{"type":"text","text":"dra"}}`)
			a.update(`{"sessionUpdate":"agent_message","messageId":"m1","content":[{"type":"text","text":"whole "},{"type":"text","text":"message"}]}`)
			a.update(`{"sessionUpdate":"tool_call_update","toolCallId":"c1","title":"make","kind":"execute","status":"in_progress"}`)
			a.update(`{"sessionUpdate":"tool_call_content_chunk","toolCallId":"c1","content":{"type":"content","content":{"type":"text","text":"building"}}}`)
			a.update(`{"sessionUpdate":"tool_call_update","toolCallId":"c1","status":"completed"}`)
			a.update(`{"sessionUpdate":"plan_update","plan":{"id":"p","type":"items","entries":[{"content":"step","status":"in_progress"}]}}`)
			a.update(`{"sessionUpdate":"usage_update","used":10,"size":100,"cost":{"amount":0.5,"currency":"USD"}}`)
			a.update(`{"sessionUpdate":"state_update","state":"something_new"}`)
			a.update(`{"sessionUpdate":"agent_message_chunk","messageId":"m2","content":{"type":"text","text":"done"}}`)
			a.update(`{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn","usage":{"inputTokens":7,"outputTokens":3,"cachedReadTokens":2}}`)
			a.update(`{"sessionUpdate":"state_update","state":"idle","stopReason":"end_turn"}`) // said again
		}
		a.read()
	},
	"permissions": func(a *acpActor) { // two at once, one id a string
		p := a.begin(acpV1)
		a.update(`{"sessionUpdate":"tool_call","toolCallId":"c1","title":"ls","kind":"execute","status":"pending"}`)
		a.asks(`"one"`, "c1", "ls", acpOptions)
		a.asks("2", "c2", "make", acpOptions)
		answers := map[string]string{}
		for range 2 {
			l := a.read()
			answers[string(l.ID)] = told(l)
		}
		a.update(`{"sessionUpdate":"tool_call_update","toolCallId":"c1","status":"completed"}`)
		a.says(answers[`"one"`] + " and " + answers["2"])
		a.answer(p, `{"stopReason":"end_turn"}`) // nothing is told of c2
		a.read()
	},
	"abort": func(a *acpActor) { // to deny ends the turn
		p := a.begin(acpV1)
		a.asks("1", "c1", "rm", `[{"optionId":"go","name":"Go","kind":"allow_once"},{"optionId":"abort","name":"Abort","kind":"reject_once"}]`)
		if got := told(a.read()); got != "selectedabort" {
			panic(got)
		}
		a.answer(p, `{"stopReason":"cancelled"}`)
		a.read()
	},
	"noway": func(a *acpActor) { // no option to deny
		p := a.begin(acpV1)
		a.asks("1", "c1", "rm", `[{"optionId":"go","name":"Go","kind":"allow_once"}]`)
		a.says(told(a.read()))
		a.answer(p, `{"stopReason":"end_turn"}`)
		a.read()
	},
	"cancel": func(a *acpActor) { // while it asks
		p := a.begin(acpV1)
		a.update(`{"sessionUpdate":"tool_call","toolCallId":"c0","title":"sleep","kind":"execute","status":"in_progress"}`)
		a.says("working")
		a.asks("1", "c1", "make", acpOptions)
		a.expect("session/cancel")
		answer := told(a.read())
		a.says("answered " + answer)
		a.answer(p, `{"stopReason":"cancelled"}`)
		p = a.expect("session/prompt")
		a.says("going on")
		a.answer(p, `{"stopReason":"end_turn"}`)
		a.read()
	},
	"strange": func(a *acpActor) {
		p := a.begin(acpV1)
		a.line(`this is no JSON`)
		a.line(`{"jsonrpc":"2.0","id":99,"result":{}}`)
		a.line(`{"jsonrpc":"2.0","method":"session/hologram","params":{}}`)
		a.update(`{"sessionUpdate":"hologram","depth":3}`)
		a.update(`{"sessionUpdate":"tool_call","title":"no id"}`)
		a.update(`{"sessionUpdate":"agent_message_chunk","content":{"type":"image","data":"AAAA","mimeType":"image/png"}}`)
		a.update(`{"sessionUpdate":"agent_message_chunk","sessionUpdate":"agent_message_chunk","content":{"type":"text","text":"still "}}`)
		a.update(`{"sessionUpdate":"available_commands_update","availableCommands":"none"}`)
		a.line(`{"jsonrpc":"2.0","id":"f1","method":"fs/read_text_file","params":{"sessionId":"s1","path":"/etc/passwd"}}`)
		l := a.read()
		var e struct {
			Code int `json:"code"`
		}
		if json.Unmarshal(l.Error, &e) != nil || e.Code != -32601 || string(l.ID) != `"f1"` {
			panic(fmt.Sprintf("answered %s %s", l.Result, l.Error))
		}
		a.says("here")
		a.line(fmt.Sprintf(`{"jsonrpc":"2.0","id":"%s","result":{"stopReason":"tired"}}`, p.ID)) // our number as a string
		a.read()
	},
	"auth": func(a *acpActor) {
		a.answer(a.expect("initialize"), `{"protocolVersion":1,"authMethods":[{"id":"oauth","name":"Log in"}]}`)
		a.fail(a.expect("session/new"), -32000, "Authentication required")
		a.read()
	},
	"oneshot": func(a *acpActor) { // can neither load nor resume
		a.answer(a.expect("initialize"), acpV1)
		a.read()
	},
	"broken": func(a *acpActor) {
		p := a.begin(acpV1)
		a.says("half")
		a.line(fmt.Sprintf(`{"jsonrpc":"2.0","id":%s,"error":{"code":-32603,"message":"Internal error","data":{"details":"429 Too Many Requests"}}}`, p.ID))
		a.read()
	},
	"dies": func(a *acpActor) {
		a.begin(acpV1)
		a.update(`{"sessionUpdate":"tool_call","toolCallId":"c0","title":"sleep","kind":"execute","status":"in_progress"}`)
		os.Exit(3)
	},
	"lingers": func(a *acpActor) { // does not mind the end of its input
		c := make(chan os.Signal, 1)
		signal.Notify(c, syscall.SIGTERM) // it may come as soon as the turn is over
		p := a.begin(acpV1)
		a.says("bye")
		a.answer(p, `{"stopReason":"end_turn"}`)
		<-c
		os.Exit(7)
	},
	"settings": func(a *acpActor) {
		a.answer(a.expect("initialize"), acpV1)
		a.answer(a.expect("session/new"), `{"sessionId":"s1","modes":{"currentModeId":"ask","availableModes":[{"id":"ask"},{"id":"code"}]},"configOptions":[{"id":"m","category":"model","currentValue":"a"}]}`)
		var said string
		for range 2 {
			l := a.read()
			said += l.Method + " " + string(l.Params) + "\n"
			a.answer(l, `{}`)
		}
		p := a.expect("session/prompt")
		a.says(said)
		a.answer(p, `{"stopReason":"end_turn","usage":{"inputTokens":1,"outputTokens":2}}`)
		a.read()
	},
	"form": func(a *acpActor) {
		p := a.begin(acpV1)
		a.line(`{"jsonrpc":"2.0","id":5,"method":"elicitation/create","params":{"sessionId":"s1","mode":"form","message":"Which branch?","requestedSchema":{"type":"object"}}}`)
		a.says(string(a.read().Result))
		a.answer(p, `{"stopReason":"end_turn"}`)
		a.read()
	},
	"limits": func(a *acpActor) {
		p := a.begin(acpV1)
		for _, reason := range []string{"max_tokens", "max_turn_requests", "refusal"} {
			a.answer(p, fmt.Sprintf(`{"stopReason":%q}`, reason))
			p = a.read()
		}
	},
}
