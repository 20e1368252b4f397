package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/local"
	"github.com/spool-run/spool/python"
)

// programChecks are about programs that engines use.
func programChecks() []Check {
	boxes := &shared[[]local.Finding]{try: local.Doctor}
	return []Check{
		{Name: "python", Deadline: 30 * time.Second, Try: one(pythonKernel)},
		{Name: "embedded-sandbox", Deadline: 30 * time.Second, Try: one(func(ctx context.Context) Finding { return embeddedSandbox(ctx, boxes) })},
		{Name: "pyodide", Deadline: 30 * time.Second, Try: one(func(ctx context.Context) Finding { return pyodide(ctx, boxes) })},
		{Name: "agents", Deadline: 30 * time.Second, Try: one(agents)},
	}
}

// pythonKernel runs a cell in a kernel.
func pythonKernel(ctx context.Context) Finding {
	out, err := cell(ctx, python.KernelConfig{}.Spec(), "import sys; print(sys.executable, sys.version.split()[0])")
	if err != nil {
		return warning("install Python 3.9 or newer as python3, or name one with spool py --python", "no kernel starts, so spool py does not work: %v", err)
	}
	return ok("a kernel ran a cell with %s", strings.TrimSpace(out))
}

// escape is what a sandboxed script tries. It prints what it could do.
const escape = `
import os, socket, subprocess
def tries():
    yield "read /etc/passwd", lambda: open("/etc/passwd").read()
    yield "list /proc/self/fd", lambda: os.listdir("/proc/self/fd")
    yield "write /tmp/../etc/spool", lambda: open("/tmp/../etc/spool", "w").write("x") and os.stat("/etc/passwd")
    yield "connect", lambda: socket.create_connection(("127.0.0.1", 9), 1)
    yield "start a program", lambda: subprocess.run(["/bin/true"], check=True)
for name, attempt in tries():
    try:
        attempt()
        print(name)
    except Exception:
        pass
print("done")
`

// embeddedSandbox has a script in a sandbox reach for this machine. It runs only
// if the interpreter is prepared, because preparing takes long.
func embeddedSandbox(ctx context.Context, boxes *shared[[]local.Finding]) Finding {
	found, err := boxes.get(ctx)
	if err != nil {
		return warning("run spool box doctor", "%v", err)
	}
	for _, f := range found {
		switch {
		case f.Backend != python.BackendEmbedded:
		case f.Name == "platform" && !f.OK:
			return warning("use --backend pyodide of spool box", "it does not work here: %s", f.Text)
		case f.Name == "cache" && strings.HasPrefix(f.Text, "not prepared"):
			return warning(`run spool box -c "print(1)" once, then spool doctor again`, "not tried: %s", f.Text)
		}
	}
	out, err := cell(ctx, python.SandboxConfig{Backend: python.BackendEmbedded}.Spec(), escape)
	if err != nil {
		return warning("run spool box doctor", "a script did not run in it: %v", err)
	}
	if strings.TrimSpace(out) != "done" {
		return problem("do not run untrusted code in it, and report this as SECURITY.md says",
			"a script in the sandbox reached this machine: %s", strings.ReplaceAll(strings.TrimSpace(out), "\n", ", "))
	}
	return ok("a script in it could neither read a file of this machine, nor write one, nor connect, nor start a program")
}

// cell starts a run in a state directory of its own, executes code in it and
// returns what it wrote.
func cell(ctx context.Context, spec spool.Spec, code string) (_ string, err error) {
	dir, err := os.MkdirTemp("", "spool-doctor-")
	if err != nil {
		return "", err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	b, err := local.Open(dir, local.Options{InProcess: true})
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	run, err := spool.Start(ctx, b, spec)
	if err != nil {
		return "", err
	}
	turn, err := run.Exec(ctx, "", spool.Cell{Code: code})
	if err != nil {
		return "", err
	}
	var out strings.Builder
	for e, err := range turn.Events(ctx) {
		if err != nil {
			return "", err
		}
		if e.Kind == spool.KindOutput {
			out.Write(e.Bytes)
		}
	}
	done, err := turn.Wait(ctx)
	if err == nil && done.Outcome != spool.TurnOK {
		err = fmt.Errorf("%s: %s", done.Outcome, done.Error)
	}
	return out.String(), err
}

// pyodide checks what Pyodide sandboxes need.
func pyodide(ctx context.Context, boxes *shared[[]local.Finding]) Finding {
	found, err := boxes.get(ctx)
	if err != nil {
		return warning("run spool box doctor", "%v", err)
	}
	var missing, there []string
	for _, f := range found {
		switch {
		case f.Backend != python.BackendPyodide:
		case f.OK:
			there = append(there, f.Text)
		default:
			missing = append(missing, f.Name+": "+f.Text)
		}
	}
	if len(missing) > 0 {
		return warning("nothing, unless you need packages such as numpy in a sandbox; spool box doctor says more", "Pyodide sandboxes are not ready: %s", missing[0])
	}
	return ok("%s", list(there))
}

// agents asks the installed agents for their versions.
func agents(ctx context.Context) Finding {
	var there, broken, missing []string
	for _, a := range local.Agents(ctx) {
		switch {
		case a.Error != "":
			broken = append(broken, a.Agent+": "+a.Error)
		case a.Path == "":
			missing = append(missing, a.Agent)
		default:
			there = append(there, strings.TrimSpace(a.Agent+" "+a.Version))
		}
	}
	switch {
	case len(broken) > 0:
		return warning("install it again; spool agent list prints the command", "an agent cannot be used: %s", list(broken))
	case len(there) == 0:
		f := ok("none is installed")
		f.Next = "spool agent list prints how to install one"
		return f
	}
	return ok("%s answered; not installed: %s", strings.Join(there, ", "), strings.Join(missing, ", "))
}
