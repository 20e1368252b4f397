package talk

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
)

// MaxText is the most of one text that an event holds. The whole of it goes
// into a blob.
const MaxText = 1 << 20

// fit returns what of a text an event can hold, and a blob of the whole if
// that is more.
func (t *Turn) fit(s string) (string, *spool.Blob) {
	if len(s) <= MaxText {
		return s, nil
	}
	head := strings.ToValidUTF8(s[:MaxText], "\uFFFD")
	blob, err := t.Run.Out.PutBlob("text/plain; charset=utf-8", strings.NewReader(s))
	if err != nil {
		t.Notice("warning", NoticeWarning, fmt.Sprintf("a text of %d bytes was cut to %d: %v", len(s), MaxText, err))
		return head, nil
	}
	return head, &blob
}

// fitInput keeps the arguments of an action within bounds.
func (t *Turn) fitInput(a *agent.Action) {
	if len(a.Input) > MaxText {
		a.Input = cutJSON(t, a.Input)
	}
	if len(a.Detail) > MaxText {
		a.Detail = cutJSON(t, a.Detail)
	}
	for i := range a.Changes {
		if len(a.Changes[i].Diff) > MaxText {
			changes := append([]agent.FileChange(nil), a.Changes...)
			changes[i].Diff = strings.ToValidUTF8(changes[i].Diff[:MaxText], "\uFFFD")
			a.Changes = changes
		}
	}
}

// cutJSON replaces a large JSON value by a blob of it.
func cutJSON(t *Turn, v json.RawMessage) json.RawMessage {
	blob, err := t.Run.Out.PutBlob("application/json", bytes.NewReader(v))
	if err != nil {
		return json.RawMessage(`{"dropped":` + fmt.Sprint(len(v)) + `}`)
	}
	b, err := json.Marshal(blob)
	if err != nil {
		return nil
	}
	return b
}

// Title shortens a text to one line for a title.
func Title(s string) string {
	s = strings.TrimSpace(s)
	if i := strings.IndexByte(s, '\n'); i >= 0 {
		s = strings.TrimSpace(s[:i]) + " …"
	}
	for i, n := 0, 0; i < len(s); n++ {
		if n == 300 {
			return s[:i] + "…"
		}
		_, size := utf8.DecodeRuneInString(s[i:])
		i += size
	}
	return s
}
