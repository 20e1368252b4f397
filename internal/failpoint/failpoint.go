// Package failpoint injects failures for tests. Code that must survive a failure
// names the points where it could happen:
//
//	if err := failpoint.Inject("store.append"); err != nil {
//		return err
//	}
//
// A test arms a point to return an error, to wait, or to kill the process with
// SIGKILL. While no point is armed, a point costs the load of one flag.
//
// Tests arm points with [Enable], or with [FromEnv] in a process they start. A
// normal build calls neither, but in the workers of "spool torture": only the build
// tag failpoint makes a program read the environment.
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

// Variable is the environment variable that [FromEnv] reads.
const Variable = "SPOOL_FAILPOINTS"

// ErrInjected is the error of a point without an explicit one.
var ErrInjected = errors.New("injected failure")

var (
	armed atomic.Bool // whether any point is armed

	mu     sync.Mutex
	points map[string]*point
)

type point struct {
	act  Action
	at   int // the hit that acts; zero for every hit
	hits int
}

// Action is the action of an armed point.
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

// Kill makes a point kill the process with SIGKILL.
func Kill() error {
	if self, err := os.FindProcess(os.Getpid()); err == nil {
		_ = self.Kill()
	}
	select {} // until the signal arrives
}

// Enable arms a point for its nth hit only, or for every hit if n is zero. It
// replaces an earlier action. The returned function disarms the point.
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

// Inject performs the action of an armed point.
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
		return fmt.Errorf("unknown action %q; the actions are fail, stall and kill", action)
	}
	return nil
}
