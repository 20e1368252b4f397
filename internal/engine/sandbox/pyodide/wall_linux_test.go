//go:build amd64 || arm64

package pyodide

import (
	"testing"

	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/skiptest"
)

// A process in the place of Node, which a script has broken out into, cannot leave.
func TestNodeCannotEscape(t *testing.T) {
	t.Parallel()
	b := New(Options{})
	defer b.Close()
	o, err := b.cellOptions(testContext(t))
	if err != nil {
		t.Fatal(err)
	}
	o.Name = "" // what an earlier process has proven does not count
	landlock := isolate.NewSet(isolate.Writes, isolate.Protects, isolate.Reads, isolate.NoNetwork, isolate.Kills, isolate.Survives, isolate.Processes)
	for mechanism, test := range map[string]struct {
		without []string
		want    isolate.Set
	}{
		isolate.Namespaces: {nil, landlock.With(isolate.Apart, isolate.Rootless)},
		isolate.Landlock:   {[]string{isolate.Namespaces}, landlock},
		isolate.Filter:     {[]string{isolate.Namespaces, isolate.Landlock}, isolate.NewSet(isolate.NoNetwork, isolate.Kills, isolate.Survives, isolate.Processes)},
	} {
		t.Run(mechanism, func(t *testing.T) {
			o.Without = test.without
			p, err := isolate.NewCell(o).Proof(testContext(t))
			if err != nil {
				t.Fatal(err)
			}
			if p.Mechanism != mechanism {
				skiptest.Missing(t, "the mechanism is %s: %v", p.Mechanism, p.Causes)
			}
			t.Logf("%s, %v", p.Has, p.Why)
			if missing := test.want.Without(p.Has); len(missing) > 0 {
				t.Errorf("it lacks %s: %v", missing, p.Why)
			}
			for _, g := range []isolate.Guarantee{isolate.Memory, isolate.Processor, isolate.Narrow} {
				if p.Has.Has(g) {
					t.Errorf("it claims %s", g)
				}
			}
		})
	}
}
