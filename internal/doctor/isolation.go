package doctor

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/probe"
	"github.com/spool-run/spool/local"
)

// isolationChecks are about what separates code from this machine.
func isolationChecks(o Options) []Check {
	var list []Check
	for _, n := range []struct {
		kind   probe.Namespace
		shown  string // by the attempt
		needed string
	}{
		{probe.User, "a child was root of its own, and only there", "code cannot get a root of its own"},
		{probe.Mount, "a child mounted a file system that only it saw", "code cannot get a file tree of its own"},
		{probe.PID, "a child was the first of its own processes", "code cannot be kept from seeing other processes"},
		{probe.Net, "a child had only its own loopback interface", "code cannot be cut off the network"},
	} {
		list = append(list, Check{Name: string(n.kind) + "-namespace", Try: one(func(ctx context.Context) Finding {
			if err := probe.TryNamespace(ctx, n.kind); err != nil {
				return warning(nextNamespace(err), "%s by a namespace, and Pyodide sandboxes are refused: %v", n.needed, err)
			}
			return ok("%s", n.shown)
		})})
	}
	return append(list,
		Check{Name: "landlock", Try: one(landlock)},
		Check{Name: "seccomp", Try: one(seccomp)},
		Check{Name: "gvisor", Try: one(gvisor)},
		Check{Name: "profiles", Deadline: time.Minute, Try: func(ctx context.Context) []Finding { return profiles(ctx, o) }},
		Check{Name: "sandboxes", Deadline: time.Minute, Try: sandboxes},
	)
}

// profiles has a process try to escape from each profile.
func profiles(ctx context.Context, o Options) []Finding {
	var list []Finding
	err := isolate.Suite(ctx, o.Against, func(r Escape) error {
		if o.Escaped != nil {
			o.Escaped(r)
		}
		if r.Name != string(isolate.None) && !slices.Contains(o.Against, r.Name) {
			list = append(list, profile(r))
		}
		return ctx.Err()
	})
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, spool.ErrUnsupported) {
		return []Finding{warning("use Linux for isolation", "runs cannot be isolated: %v", err)}
	}
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		list = append(list, problem(nextLate, "the attempts to escape took too long: %v", err))
	case err != nil:
		list = append(list, problem("run spool doctor again", "the attempts to escape could not be made: %v", err))
	}
	return list
}

// sandboxes has a process in the place of the interpreters of sandboxes try to escape.
func sandboxes(ctx context.Context) []Finding {
	found, err := local.Doctor(ctx)
	if err != nil {
		return []Finding{problem("run spool doctor again", "the attempts to escape from sandboxes could not be made: %v", err)}
	}
	var list []Finding
	for _, f := range found {
		switch {
		case f.Name != "isolation":
		case f.OK:
			list = append(list, ok("%s: %s", f.Backend, f.Text))
		default:
			list = append(list, warning("spool box doctor", "%s: %s", f.Backend, f.Text))
		}
	}
	if len(list) == 0 {
		return []Finding{warning("spool box doctor", "no sandbox can be started")}
	}
	return list
}

// profile says what the attempts in a profile came to.
func profile(r Escape) Finding {
	if r.Refused != "" {
		return warning(r.Fix, "%s is refused: %s", r.Name, r.Refused)
	}
	var escaped []string
	for _, a := range r.Attempts {
		if a.Escaped {
			escaped = append(escaped, a.Name)
		}
	}
	if len(escaped) > 0 {
		return problem("do not rely on this profile, and report it", "%s by %s: %s succeeded", r.Name, r.Mechanism, strings.Join(escaped, ", "))
	}
	return ok("%s by %s: all %d attempts to escape failed", r.Name, r.Mechanism, len(r.Attempts))
}

// gvisor says whether runs can have a kernel of their own. That they cannot escape from
// it is the result of profiles.
func gvisor(ctx context.Context) Finding {
	path, version, err := isolate.GVisorVersion(ctx)
	const without = "no run has few system calls (H), and profile strict needs --waive H"
	switch {
	case errors.Is(err, isolate.ErrNoGVisor):
		return warning(isolate.InstallGVisor, "not installed (no runsc in PATH): %s", without)
	case errors.Is(err, errors.ErrUnsupported):
		return warning("use Linux for isolation", "%s: %v", without, err)
	case err != nil:
		return warning("install it again", "%s: %v", without, err)
	}
	return ok("%s %s gives runs few system calls (H), which strict needs", path, version)
}

// nextNamespace returns what to do about namespaces that the kernel refuses.
func nextNamespace(err error) string {
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return "use Linux for isolation"
	case sysctl("kernel/apparmor_restrict_unprivileged_userns") == "1":
		return "AppArmor restricts user namespaces: add an AppArmor profile for spool that has \"userns,\", or run sysctl kernel.apparmor_restrict_unprivileged_userns=0"
	case sysctl("kernel/unprivileged_userns_clone") == "0":
		return "run sysctl kernel.unprivileged_userns_clone=1"
	case sysctl("user/max_user_namespaces") == "0":
		return "run sysctl user.max_user_namespaces=15000"
	case errors.Is(err, syscall.EPERM):
		return "in a container, allow clone with namespaces (docker run --security-opt seccomp=unconfined, or a profile of your own)"
	}
	return nextKernel
}

// sysctl returns a setting of the kernel, empty if there is none.
func sysctl(name string) string {
	b, err := os.ReadFile("/proc/sys/" + name)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func landlock(ctx context.Context) Finding {
	found, err := probe.TryLandlock(ctx)
	if err != nil {
		next := "use a kernel with Landlock (5.13 or newer) that lists it in its lsm= boot parameter"
		if errors.Is(err, errors.ErrUnsupported) {
			next = "use Linux for isolation"
		}
		return warning(next, "a process cannot be restricted to some files: %v", err)
	}
	held := []string{"reading a file outside", "writing"}
	var missing []string
	for _, f := range []struct {
		held bool
		what string
		abi  int
	}{{found.TCP, "connecting", 4}, {found.Signals, "signalling another process", 6}} {
		if f.held {
			held = append(held, f.what)
		} else {
			missing = append(missing, fmt.Sprintf("%s (ABI %d)", f.what, f.abi))
		}
	}
	text := fmt.Sprintf("ABI %d: a restricted child was refused %s", found.ABI, strings.Join(held, ", "))
	if len(missing) > 0 {
		return warning("use a newer kernel", "%s; not refused: %s", text, strings.Join(missing, ", "))
	}
	return ok("%s", text)
}

func seccomp(ctx context.Context) Finding {
	if err := probe.TrySeccomp(ctx); err != nil {
		next := "use a kernel with CONFIG_SECCOMP_FILTER"
		if errors.Is(err, errors.ErrUnsupported) {
			next = "use Linux on amd64 or arm64"
		}
		return warning(next, "system calls cannot be refused: embedded sandboxes have WebAssembly as their only wall, and strict ones are refused: %v", err)
	}
	return ok("a filter refused a system call")
}
