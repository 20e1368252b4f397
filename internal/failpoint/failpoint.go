// Package failpoint breaks things on purpose. Code that must survive a failure
// names the places where it could happen:
//
//	if err := failpoint.Inject("store.append"); err != nil {
//		return err
//	}
//
// A test arms such a point to return an error, to stop there, or to kill the
// process as SIGKILL would. While nothing is armed, a point costs the load of
// one flag.
//
// Points are armed by [Enable], or by [FromEnv] in a process that a test
// starts. A program that is built normally calls neither: only the build tag
// failpoint makes it look at the environment.
package failpoint

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Variable is what [FromEnv] reads.
const Variable = "SPOOL_FAILPOINTS"

// ErrInjected is what a point fails with when nothing else was said.
var ErrInjected = errors.New("injected failure")

var (
	armed atomic.Bool // whether any point is

	mu     sync.Mutex
	points map[string]*point
)

type point struct {
	act  Action
	at   int // the hit that acts; zero for every one
	hits int
}

// Action is what an armed point does.
type Action func() error

// Fail makes a point return an error.
func Fail(err error) Action { return func() error { return err } }

// Stall makes a point wait until the channel is closed.
func Stall(until <-chan struct{}) Action {
	return func() error {
		<-until
		return nil
	}
}

// Kill makes a point end the process, with no chance to clean up.
func Kill() error {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {} // the signal is on its way
}

// Enable arms a point, for its nth hit only, or for every one if n is zero. It
// takes the place of what was armed there. The function it returns disarms the
// point.
func Enable(name string, n int, act Action) (disable func()) {
	p := &point{act: act, at: n}
	mu.Lock()
	defer mu.Unlock()
	if points == nil {
		points = make(map[string]*point)
	}
	points[name] = p
	armed.Store(true)
	return func() {
		mu.Lock()
		defer mu.Unlock()
		if points[name] == p {
			delete(points, name)
		}
		armed.Store(len(points) > 0)
	}
}

// Inject does what the point was armed for, if it was.
func Inject(name string) error {
	if !armed.Load() {
		return nil
	}
	return hit(name)
}

func hit(name string) error {
	mu.Lock()
	p := points[name]
	if p == nil {
		mu.Unlock()
		return nil
	}
	p.hits++
	act := p.at == 0 || p.at == p.hits
	mu.Unlock()
	if !act {
		return nil
	}
	if err := p.act(); err != nil {
		return fmt.Errorf("failpoint %s: %w", name, err)
	}
	return nil
}

// FromEnv arms the points that the environment names, as in
//
//	SPOOL_FAILPOINTS="store.append=kill@3;launch.fork=fail"
//
// The actions are fail, stall and kill; a number after @ is the hit that acts.
func FromEnv() error {
	for item := range strings.SplitSeq(os.Getenv(Variable), ";") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		if err := enable(item); err != nil {
			return fmt.Errorf("%s: %q: %w", Variable, item, err)
		}
	}
	return nil
}

func enable(item string) error {
	name, action, ok := strings.Cut(item, "=")
	if !ok || name == "" {
		return errors.New("want name=action")
	}
	action, at, counted := strings.Cut(action, "@")
	n := 0
	if counted {
		var err error
		if n, err = strconv.Atoi(at); err != nil || n < 1 {
			return fmt.Errorf("want a number after @, not %q", at)
		}
	}
	switch action {
	case "fail":
		Enable(name, n, Fail(ErrInjected))
	case "stall":
		Enable(name, n, Stall(nil)) // for ever
	case "kill":
		Enable(name, n, Kill)
	default:
		return fmt.Errorf("unknown action %q; there are fail, stall and kill", action)
	}
	return nil
}
