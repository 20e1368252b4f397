package modeltest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
)

// Dialect is an API that the model speaks.
type Dialect string

// The dialects.
const (
	Responses Dialect = "responses" // OpenAI Responses
	Chat      Dialect = "chat"      // OpenAI Chat Completions
	Messages  Dialect = "messages"  // Anthropic Messages
)

// The token counts of every answer.
const (
	InputTokens  = 100
	OutputTokens = 20
)

// dialect decodes requests and encodes answers of one API.
type dialect struct {
	name    Dialect
	path    string // below /v1/
	decode  func(body []byte, r *Request) error
	stream  func(r *Request, a Reply) []event
	whole   func(r *Request, a Reply) any // the answer without streaming
	failure func(f *Failure) any
}

var dialects = []dialect{
	{Responses, "responses", decodeResponses, streamResponses, wholeResponses, openAIFailure},
	{Chat, "chat/completions", decodeChat, streamChat, wholeChat, openAIFailure},
	{Messages, "messages", decodeMessages, streamMessages, wholeMessages, anthropicFailure},
}

// event is one server-sent event. Data is encoded as JSON unless it is text.
type event struct {
	name string
	data any
}

// rawText is data that is sent unchanged.
type rawText string

// errCut requests that the connection is cut.
var errCut = errors.New("cut")

// writeStream sends all events, or the first half of them.
func writeStream(w http.ResponseWriter, events []event, cut bool) error {
	if cut {
		events = events[:(len(events)+1)/2]
	}
	flush := http.NewResponseController(w).Flush
	for _, e := range events {
		if e.name != "" {
			if _, err := fmt.Fprintf(w, "event: %s\n", e.name); err != nil {
				return err
			}
		}
		text, raw := e.data.(rawText)
		if !raw {
			data, err := json.Marshal(e.data)
			if err != nil {
				return err
			}
			text = rawText(data)
		}
		if _, err := fmt.Fprintf(w, "data: %s\n\n", text); err != nil {
			return err
		}
		if err := flush(); err != nil {
			return err
		}
	}
	if cut {
		return errCut
	}
	return nil
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(v) // a client that has disconnected needs no answer
}

// object is a JSON object literal.
type object = map[string]any

func openAIFailure(f *Failure) any {
	return object{"error": object{"message": f.Message, "type": f.Type, "code": f.Type, "param": nil}}
}

func anthropicFailure(f *Failure) any {
	return object{"type": "error", "error": object{"type": f.Type, "message": f.Message}, "request_id": "req_scripted"}
}

// halves splits a text in two, so that a stream has more than one delta.
func halves(s string) []string {
	r := []rune(s)
	if len(r) < 2 {
		return []string{s}
	}
	return []string{string(r[:len(r)/2]), string(r[len(r)/2:])}
}
