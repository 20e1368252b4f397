package local

import (
	"context"
	"errors"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine/kernel"
	"github.com/spool-run/spool/python"
)

// Finding is what [Doctor] found out about one thing that sandboxes need.
type Finding struct {
	Backend string `json:"backend"` // of sandboxes, such as [python.BackendEmbedded]
	Name    string `json:"name"`    // of what was looked at, such as "namespaces"
	OK      bool   `json:"ok"`
	Text    string `json:"text"` // what was found, and what to do about it
}

// Interpreter is a Python that a kernel may use, as [Interpreters] finds it.
type Interpreter struct {
	Path    string `json:"path"`
	From    string `json:"from"`              // where it was found, such as VIRTUAL_ENV or PATH
	Version string `json:"version,omitempty"` // of Python
	OK      bool   `json:"ok"`                // a kernel can run in it
	Used    bool   `json:"used"`              // it is the one that a kernel uses
	// Executable is what sys.executable says, where it is not Path.
	Executable string `json:"executable,omitempty"`
	Text       string `json:"text,omitempty"` // why it is not used
}

// Interpreters starts a kernel of the spec in each Python of this machine that the
// spec could use, in the order in which a start tries them, and says what came of
// it. Nothing stays running.
func Interpreters(ctx context.Context, spec spool.Spec) ([]Interpreter, error) {
	e, err := kernel.New(kernel.Options{})
	if err != nil {
		return nil, err
	}
	probed, err := e.Probe(ctx, spec)
	if err = errors.Join(err, e.Close()); err != nil {
		return nil, err
	}
	var found []Interpreter
	used := false
	for _, p := range probed {
		i := Interpreter{Path: p.Path, From: p.From, Version: p.Version, OK: p.OK, Used: p.OK && !used, Executable: p.Executable, Text: p.Text}
		if i.OK && !i.Used {
			i.Text = "another that works comes first"
		}
		used = used || i.Used
		found = append(found, i)
	}
	return found, nil
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
