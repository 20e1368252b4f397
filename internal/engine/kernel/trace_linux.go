package kernel

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// The directions of a traced message.
const (
	toInterpreter   = "to"
	fromInterpreter = "from"
	started         = "started" // an interpreter; not a message
)

// maxTraced is the longest line of a trace, in bytes. A longer message is left
// out.
const maxTraced = 64 << 10

// trace appends the messages of a run to a file, for a person who looks for a
// mistake in the protocol. Its zero value traces nothing. The loop owns it.
type trace struct {
	file *os.File
	// hideNext leaves the value of the next message out: it is a secret.
	hideNext bool
}

// traced is a line of the file.
type traced struct {
	Time      time.Time `json:"time"`
	Direction string    `json:"direction"`
	Message   any       `json:"message"`
}

// open begins to trace to the file of that path, if there is one.
func (t *trace) open(path, cwd string) error {
	if path == "" {
		return nil
	}
	if !filepath.IsAbs(path) {
		path = filepath.Join(cwd, path)
	}
	var err error
	if t.file, err = os.OpenFile(path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600); err != nil {
		return fmt.Errorf("open the trace: %w", err)
	}
	return nil
}

// record appends a message. After an error it traces no more: the run goes on
// without its trace.
func (t *trace) record(direction string, m dict) {
	hide := t.hideNext
	t.hideNext = false
	if t.file == nil {
		return
	}
	if hide {
		m = dict{"t": m["t"], "k": m["k"], "value": "(secret)"}
	}
	line, err := json.Marshal(traced{time.Now().UTC(), direction, jsonValue(m)})
	if err == nil {
		if len(line) > maxTraced {
			line, err = json.Marshal(traced{time.Now().UTC(), direction, dict{"t": m["t"], "omitted_bytes": len(line)}})
		}
	}
	if err == nil {
		_, err = t.file.Write(append(line, '\n'))
	}
	if err != nil {
		t.close()
	}
}

func (t *trace) close() {
	if t.file != nil {
		_ = t.file.Close() // what could be written is written
		t.file = nil
	}
}
