package spool

import (
	"context"
	"encoding/json"
)

// Inspector is a [Backend] that can ask a live interpreter about its state, as the
// completion of a prompt does. The backends of packages local and client are
// Inspectors, unless the server is an older one.
type Inspector interface {
	// Inspect asks a run between two turns. The question is no input: it is
	// not logged and never waits for a cell.
	//
	//	{"op":"complete","code":"obj.na","cursor":6}    {"start":4,"matches":["name"]}
	//	{"op":"describe","code":"obj.name","source":true}    {"text":"Type: str …"}
	//	{"op":"check","code":"if x:"}    {"status":"incomplete","indent":"    "}
	//
	// The cursor and the start are counted in characters; a match replaces
	// the code from the start to the cursor. The text is empty if the code
	// names nothing. The status of code is complete, incomplete or invalid; the indent
	// is what the next line of incomplete code begins with.
	//
	// The error is [ErrBusy] while a cell runs or waits, [ErrEnded] if the
	// run has ended, [ErrUnsupported] if such a run cannot be asked, and
	// [ErrInvalid] if the question does not decode or is too long.
	Inspect(ctx context.Context, id RunID, question json.RawMessage) (json.RawMessage, error)
}
