package python

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spool-run/spool"
)

// Display is the payload of a display event, and of a result: one value in as
// many forms as it has, of which a reader picks the best it can show.
//
// In JSON the MIME types are members beside the others, which have no slash:
//
//	{"text/plain":"<Figure>","image/png":{"blob":"sha256:…","size_bytes":5123},"id":"plot"}
type Display struct {
	// Bundle holds the forms by MIME type: a JSON string for text, base64
	// in a JSON string for images and other bytes, any JSON value for JSON
	// types, and the object of a [spool.Blob] for what is too large for a log.
	// JSON that itself looks like a blob must itself be stored as a blob,
	// so that a reader does not mistake it for one.
	Bundle map[string]json.RawMessage
	// Metadata says more about single forms, by MIME type.
	Metadata map[string]json.RawMessage
	// ID names the display, so that a later one with Update takes its
	// place.
	ID     string
	Update bool
	// Clear takes back what the turn has shown before this: at once, or
	// with Wait when the next thing is shown.
	Clear, Wait bool
	// Count is the execution count of a result.
	Count int
}

// displayAttributes are the members of a display that are not MIME types.
type displayAttributes struct {
	Metadata map[string]json.RawMessage `json:"metadata,omitempty"`
	ID       string                     `json:"id,omitempty"`
	Update   bool                       `json:"update,omitempty"`
	Clear    bool                       `json:"clear,omitempty"`
	Wait     bool                       `json:"wait,omitempty"`
	Count    int                        `json:"execution_count,omitempty"`
}

// MarshalJSON implements [json.Marshaler].
func (d Display) MarshalJSON() ([]byte, error) {
	members := make(map[string]any, len(d.Bundle)+2)
	for mime, value := range d.Bundle {
		if !strings.Contains(mime, "/") {
			return nil, fmt.Errorf("encode display: %w: %q is no MIME type", spool.ErrInvalid, mime)
		}
		members[mime] = value
	}
	// These are the members of displayAttributes, which decodes them.
	for name, value := range map[string]bool{"update": d.Update, "clear": d.Clear, "wait": d.Wait} {
		if value {
			members[name] = true
		}
	}
	if len(d.Metadata) > 0 {
		members["metadata"] = d.Metadata
	}
	if d.ID != "" {
		members["id"] = d.ID
	}
	if d.Count != 0 {
		members["execution_count"] = d.Count
	}
	b, err := json.Marshal(members)
	if err != nil {
		return nil, fmt.Errorf("encode display: %w", err)
	}
	return b, nil
}

// UnmarshalJSON implements [json.Unmarshaler]. Unknown members are ignored.
func (d *Display) UnmarshalJSON(b []byte) error {
	var a displayAttributes
	if err := json.Unmarshal(b, &a); err != nil {
		return fmt.Errorf("decode display: %w", err)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(b, &members); err != nil {
		return fmt.Errorf("decode display: %w", err)
	}
	*d = Display{Metadata: a.Metadata, ID: a.ID, Update: a.Update, Clear: a.Clear, Wait: a.Wait, Count: a.Count}
	for mime, value := range members {
		if strings.Contains(mime, "/") {
			if d.Bundle == nil {
				d.Bundle = make(map[string]json.RawMessage, len(members))
			}
			d.Bundle[mime] = value
		}
	}
	return nil
}

// Exception is the payload of an exception event: what a turn raised.
type Exception struct {
	Name    string `json:"name"`    // its type, such as ValueError
	Message string `json:"message"` // what it says
	// Traceback is what a person reads, without colours, ending with name
	// and message.
	Traceback string `json:"traceback,omitempty"`
	// Printed says that all this is in the output already, so that who
	// shows that need not show it again.
	Printed bool `json:"printed,omitempty"`
}

// MIMEStatus is the type of a display that tells a program what a helper did.
// It has nothing for a person to read.
const MIMEStatus = "application/vnd.spool.status+json"
