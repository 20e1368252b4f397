package cli

import (
	"encoding/json"
	"io"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/agents/takopi"
)

// The views of an agent's run that --json prints.
const (
	viewSpool  = "spool"  // the events of the log
	viewTakopi = "takopi" // the events of takopi: started, action, completed
)

// takopiPrinter prints the takopi view of a run, one JSON object per line.
type takopiPrinter struct {
	view *takopi.View
	out  *json.Encoder
}

func newTakopiPrinter(agent string, w io.Writer) *takopiPrinter {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return &takopiPrinter{takopi.New(agent), enc}
}

// print prints the takopi events of an event; there may be none.
func (p *takopiPrinter) print(e *spool.Event) error {
	for _, t := range p.view.Project(*e) {
		if err := p.out.Encode(t); err != nil {
			return err
		}
	}
	return nil
}
