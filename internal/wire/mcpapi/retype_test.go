package mcpapi

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/spool-run/spool"
)

// TestRetypeForm checks that the form for a dangerous ask has a field to type it again,
// which who refuses it leaves empty, and that a model is told.
func TestRetypeForm(t *testing.T) {
	ask := spool.Ask{Kind: "approval", Prompt: "run it?", Retype: true, Data: json.RawMessage(`{"command":"rm -r build"}`), Options: []spool.AskOption{{ID: "yes"}, {ID: "no"}}}
	form, err := json.Marshal(askForm(&ask))
	if err != nil || !strings.Contains(string(form), `"retype":{"title":"This is dangerous. To allow it, type it again: rm -r build","type":"string"}`) ||
		!strings.Contains(string(form), `"required":["answer"]`) {
		t.Errorf("the form is %s, %v", form, err)
	}
	if v := shownAsk(7, &ask); !v.Retype {
		t.Errorf("a model sees %+v", v)
	}
	ask.Retype = false
	if form, err := json.Marshal(askForm(&ask)); err != nil || strings.Contains(string(form), "retype") {
		t.Errorf("the form for a harmless ask is %s, %v", form, err)
	}
}
