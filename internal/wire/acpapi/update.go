package acpapi

import "encoding/json"

// The updates of a session.

// meta is the place in the log that a message is from.
type meta struct {
	Spool place `json:"spool"`
}

// place is an event of a run. A client that comes back with it in the _meta of
// session/resume sees what came after it.
type place struct {
	Run string `json:"run"`
	Seq uint64 `json:"seq,omitempty"`
	// Turn and Usage are those of a prompt that ended.
	Turn  uint64          `json:"turn,omitempty"`
	Usage json.RawMessage `json:"usage,omitempty"`
}

// contentBlock is a content block: text or an image.
type contentBlock struct {
	Type string `json:"type"`
	Text string `json:"text,omitempty"`
	MIME string `json:"mimeType,omitempty"`
	Data []byte `json:"data,omitempty"`
}

func textBlock(text string) contentBlock { return contentBlock{Type: "text", Text: text} }

// chunkUpdate is a piece of a message or a thought.
type chunkUpdate struct {
	Update    string         `json:"sessionUpdate"`
	Content   contentBlock   `json:"content"`
	MessageID string         `json:"messageId,omitempty"`
	Meta      meta           `json:"_meta"`
	whole     bool           // it is all of the message
	more      []contentBlock // of a whole message in version 2
}

// toolUpdate is a tool call, or what changed about one.
type toolUpdate struct {
	Update    string          `json:"sessionUpdate,omitempty"`
	ID        string          `json:"toolCallId"`
	Title     string          `json:"title,omitempty"`
	Name      string          `json:"name,omitempty"`
	Kind      string          `json:"kind,omitempty"`
	Status    string          `json:"status,omitempty"`
	Content   []toolContent   `json:"content,omitempty"`
	Locations []location      `json:"locations,omitempty"`
	RawInput  json.RawMessage `json:"rawInput,omitempty"`
	RawOutput *rawOutput      `json:"rawOutput,omitempty"`
	Meta      meta            `json:"_meta"`
}

// toolContent is what a tool call shows: text, or a change of a file.
type toolContent struct {
	Type    string        `json:"type"` // content or diff
	Content *contentBlock `json:"content,omitempty"`
	Path    string        `json:"path,omitempty"`
	OldText *string       `json:"oldText,omitempty"`
	NewText *string       `json:"newText,omitempty"`
	// Of a diff in version 2.
	Changes []diffChange `json:"changes,omitempty"`
	Patch   *diffPatch   `json:"patch,omitempty"`
}

// location is a place that a tool call works on.
type location struct {
	Path string `json:"path"`
	Line int    `json:"line,omitempty"`
}

// rawOutput is how a tool call ended.
type rawOutput struct {
	Output   string `json:"output,omitempty"`
	ExitCode *int   `json:"exit_code,omitempty"`
	Message  string `json:"message,omitempty"`
}

// planUpdate is all that the agent means to do.
type planUpdate struct {
	Update  string      `json:"sessionUpdate"`
	Entries []planEntry `json:"entries"`
	Meta    meta        `json:"_meta"`
}

type planEntry struct {
	Content  string `json:"content"`
	Priority string `json:"priority"`
	Status   string `json:"status"`
}

// usageUpdate is how full the window of the model is, and what the session cost.
type usageUpdate struct {
	Update string `json:"sessionUpdate"`
	Used   int64  `json:"used"`
	Size   int64  `json:"size"`
	Cost   *cost  `json:"cost,omitempty"`
	Meta   meta   `json:"_meta"`
}

type cost struct {
	Amount   float64 `json:"amount"`
	Currency string  `json:"currency"`
}

// noticeUpdate tells the user something.
type noticeUpdate struct {
	Update   string `json:"sessionUpdate"`
	Severity string `json:"severity"`
	Title    string `json:"title"`
	Meta     meta   `json:"_meta"`
}

// infoUpdate is what is known about the session.
type infoUpdate struct {
	Update    string `json:"sessionUpdate"`
	Title     string `json:"title,omitempty"`
	UpdatedAt string `json:"updatedAt,omitempty"`
	Meta      meta   `json:"_meta"`
}
