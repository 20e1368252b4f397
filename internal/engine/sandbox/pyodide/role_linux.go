//go:build amd64 || arm64

package pyodide

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"

	"github.com/spool-run/spool/internal/isolate"
)

// Descriptors of the supervisor.
const (
	fdControl  = isolate.FirstFile + iota // to the host
	fdSnapshot                            // the snapshot, or nothing of interest
)

// RunRole is the life of a process of [Role]: args are what follows the role's
// name. It returns the exit code.
func RunRole(args []string) int {
	if err := runRole(args); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func runRole(args []string) error {
	if len(args) != 2 {
		return errors.New("spool starts this process itself; it is not a command")
	}
	switch args[0] {
	case verbSupervise:
		var p plan
		if err := json.Unmarshal([]byte(args[1]), &p); err != nil {
			return fmt.Errorf("decode plan: %w", err)
		}
		return supervise(p)
	case verbHold:
		return hold(args[1])
	case verbTry:
		return try(args[1])
	}
	return fmt.Errorf("no verb %q", args[0])
}

// The verbs of the role.
const (
	verbSupervise = "supervise"
	verbHold      = "hold" // in the place of the supervisor, the process that tries to escape
	verbTry       = "try"  // to escape, in the place of Node
)

// rooted says whether interpreters have a tree of their own.
func (p *plan) rooted() bool { return p.Wall == isolate.Namespaces }

// places are what the interpreters see of this machine.
func (p *plan) places() []isolate.Place {
	list := append(programPlaces(p.Node, p.Libs), isolate.Place{From: p.Dist, To: guestDist})
	if p.Packages != "" {
		list = append(list, isolate.Place{From: p.Packages, To: guestPackages})
	}
	return list
}

// programPlaces are a program in the place of Node and its libraries.
func programPlaces(path string, libs []string) []isolate.Place {
	list := []isolate.Place{{From: path, To: guestNode}}
	for _, lib := range libs {
		list = append(list, isolate.Place{From: lib, To: lib})
	}
	return list
}
