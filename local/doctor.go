package local

import (
	"context"

	"github.com/spool-run/spool/python"
)

// Finding is what [Doctor] found out about one thing that sandboxes need.
type Finding struct {
	Backend string `json:"backend"` // of sandboxes, such as [python.BackendEmbedded]
	Name    string `json:"name"`    // of what was looked at, such as "namespaces"
	OK      bool   `json:"ok"`
	Text    string `json:"text"` // what was found, and what to do about it
}

// Doctor looks at what this machine offers to sandboxes: what each back end
// needs, which protections there are, and what is prepared. It changes
// nothing. The first finding of a back end says whether it works at all.
func Doctor(ctx context.Context) ([]Finding, error) {
	var found []Finding
	backends := sandboxBackends()
	for _, name := range []string{python.BackendEmbedded, python.BackendPyodide} {
		b, err := backends[name]()
		if err != nil {
			return found, err
		}
		for _, f := range b.Doctor(ctx) {
			found = append(found, Finding{name, f.Name, f.OK, f.Text})
		}
		if err := b.Close(); err != nil {
			return found, err
		}
	}
	return found, nil
}
