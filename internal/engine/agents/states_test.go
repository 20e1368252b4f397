package agents

import (
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/agent"
	"github.com/spool-run/spool/internal/engine/agents/talk"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/internal/isolate"
	"github.com/spool-run/spool/internal/leaktest"
)

// taken are the transitions of all sessions of all tests.
var taken = struct {
	mu    sync.Mutex
	table map[state][]state
}{table: make(map[state][]state)}

// expected is set while a test takes a transition that is not in the table.
var expected atomic.Bool

func init() {
	onTransition = func(from, to state, legal bool) {
		if !legal && expected.Load() {
			return
		}
		if !legal {
			panic(fmt.Sprintf("no transition leads from %q to %q", from, to))
		}
		taken.mu.Lock()
		defer taken.mu.Unlock()
		if !slices.Contains(taken.table[from], to) {
			taken.table[from] = append(taken.table[from], to)
		}
	}
}

// TestMain fails if a goroutine is left, or if a complete run of the tests did
// not take every transition of the table: such a line would be of no use.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == isolate.Role { // a process of a sandbox
		os.Exit(isolate.Work(os.Args[2:]))
	}
	code := m.Run()
	if code == 0 && complete() {
		if missing := untaken(); len(missing) > 0 {
			fmt.Fprintf(os.Stderr, "no test takes the transition %s\n", strings.Join(missing, ", "))
			code = 1
		}
	}
	os.Exit(leaktest.Code(code))
}

// skipped is set when a test was skipped because this machine has no engine.
var skipped atomic.Bool

// complete reports whether all tests ran.
func complete() bool {
	for _, name := range []string{"test.run", "test.skip", "test.fuzz", "test.list"} {
		if f := flag.Lookup(name); f != nil && f.Value.String() != "" {
			return false
		}
	}
	return !testing.Short() && !skipped.Load()
}

func untaken() []string {
	taken.mu.Lock()
	defer taken.mu.Unlock()
	var list []string
	for _, from := range slices.Sorted(maps.Keys(transitions)) {
		for _, to := range transitions[from] {
			if !slices.Contains(taken.table[from], to) {
				list = append(list, fmt.Sprintf("%q → %q", from, to))
			}
		}
	}
	return list
}

// TestTransitionsAreClosed checks the table itself: every state has a line, and
// a run, a turn and a process never become each other.
func TestTransitionsAreClosed(t *testing.T) {
	part := func(s state) string {
		for _, p := range []string{"run", "turn", "process"} {
			if strings.Contains(string(s), p) {
				return p
			}
		}
		return ""
	}
	for from, list := range transitions {
		for _, to := range list {
			if _, ok := transitions[to]; !ok {
				t.Errorf("%q has no line", to)
			}
			if part(from) != part(to) || part(from) == "" || from == to {
				t.Errorf("%q leads to %q", from, to)
			}
		}
	}
}

// TestIllegalTransitionIsReported checks that a transition that is not in the
// table is in the log of a session, with all its states, and fails every test
// that does not expect it.
func TestIllegalTransitionIsReported(t *testing.T) {
	config, err := json.Marshal(agent.Config{Agent: agent.Codex})
	if err != nil {
		t.Fatal(err)
	}
	log := enginetest.NewLog()
	s, err := prepare(&spool.Spec{Engine: agent.Engine, Config: config, Cwd: "/"}, &Options{}, log)
	if err != nil {
		t.Fatal(err)
	}
	illegal := func() (failed any) {
		defer func() { failed = recover() }()
		s.state.run = runEnded
		s.move(&s.state.run, runOpen)
		return nil
	}
	if illegal() == nil {
		t.Error("an ended run opened again")
	}
	expected.Store(true)
	defer expected.Store(false)
	if failed := illegal(); failed != nil {
		t.Fatal(failed)
	}
	events := log.All(t)
	var n spool.Notice
	if len(events) != 1 || json.Unmarshal(events[0].Data, &n) != nil || n.Code != talk.NoticeIllegal || n.Level != "error" {
		t.Fatalf("the log has %+v", events)
	}
	if want := `{"from":"run ended","process":"no process","run":"run open","to":"run open","turn":"no turn"}`; string(n.Data) != want {
		t.Errorf("the notice has %s", n.Data)
	}
}
