//go:build amd64 || arm64

package pyodide

import (
	"regexp"
	"strings"
	"testing"
)

// wakeUp is the small counter that a thread of Node writes to wake another of the
// same process.
var wakeUp = regexp.MustCompile(`^\d+:[0-9a-f]{2}00000000000000$`)

// Interpreters share no descriptor through which one could tell another
// anything, or disturb it: what one writes to all of its descriptors no other
// reads, and none of their pipes are the same.
func TestInterpretersShareNoDescriptors(t *testing.T) {
	b := real(t)
	writer := open(t, b, nil)
	pipes := func(c *box) []string {
		t.Helper()
		r, h := do(t, c, `
import js
print(js.eval("""(() => {
  const fs = process.getBuiltinModule('fs'), found = [];
  for (let fd = 0; fd < 1024; fd++) {
    if (fd === 2 || fd === 3) continue; // its own: standard error and the connection
    try { const s = fs.fstatSync(fd); if (s.isFIFO() || s.isSocket()) found.push(s.ino); } catch {}
  }
  return found.join(' ');
})()"""))
`)
		if r.ExitCode != 0 {
			t.Fatalf("%+v, stderr %s", r, h.stderr())
		}
		return strings.Fields(h.stdout())
	}
	seen := make(map[string]bool)
	for _, ino := range pipes(writer) {
		seen[ino] = true
	}
	prints(t, writer, `
import js
js.eval("""(() => {
  const fs = process.getBuiltinModule('fs');
  for (let fd = 0; fd < 1024; fd++) {
    if (fd === 2 || fd === 3) continue;
    try { fs.writeSync(fd, 'secret!!'); } catch {}
  }
})()""")
print('written')
`, "written\n")
	for range 2 {
		reader := open(t, b, nil)
		for _, ino := range pipes(reader) {
			if seen[ino] {
				t.Errorf("pipe %s is shared", ino)
			}
		}
		r, h := do(t, reader, `
import js
print(js.eval("""(() => {
  const fs = process.getBuiltinModule('fs'), got = [];
  for (let fd = 0; fd < 1024; fd++) {
    if (fd === 2 || fd === 3) continue;
    const b = Buffer.alloc(8);
    try { const n = fs.readSync(fd, b, 0, 8, null); if (n > 0) got.push(fd + ':' + b.toString('hex')); } catch {}
  }
  return 'read ' + got.join(' ');
})()"""))
`)
		found, ok := strings.CutPrefix(h.stdout(), "read ")
		if !ok || r.ExitCode != 0 {
			t.Errorf("stdout %q, stderr %q, %+v", h.stdout(), h.stderr(), r)
		}
		for got := range strings.FieldsSeq(found) {
			if !wakeUp.MatchString(got) {
				t.Errorf("it read %s", got)
			}
		}
		prints(t, reader, "import asyncio\nasync def f():\n    await asyncio.sleep(0.01)\n    print('awake')\nasyncio.run(f())", "awake\n")
	}
	prints(t, writer, "print('works')", "works\n")
}
