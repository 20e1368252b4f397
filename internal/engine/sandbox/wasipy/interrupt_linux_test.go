package wasipy

import (
	"bytes"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
)

// interrupter is the link of a script that is interrupted a number of loop
// passes after it printed "go", or when it waits if that is sooner. A script
// that waits after its interrupt is stopped: it would wait for ever.
type interrupter struct {
	recorder
	i       *instance
	after   uint64
	spent   int64 // when it printed "go"
	armed   bool
	told    bool
	waiting bool // when it was told
}

func (l *interrupter) Write(s guest.Stream, p []byte) {
	l.recorder.Write(s, p)
	if string(p) == "go" {
		l.armed, l.spent, l.i.next = true, l.i.spent, 0
		l.i.fuel.Set(l.after)
	}
}

func (l *interrupter) Pending() signal {
	if !l.armed || l.told || l.i.spent == l.spent { // the tick is still to come
		return nothing
	}
	l.told = true
	return interrupt
}

func (l *interrupter) Wait(time.Duration) signal {
	if l.told {
		return stop
	}
	l.told, l.waiting = true, true
	return interrupt
}

func (l *interrupter) wait() error {
	if l.Wait(0) == stop {
		return errStop
	}
	return errInterrupt
}

func (l *interrupter) Read([]byte) (int, error)           { return 0, l.wait() }
func (l *interrupter) Ask(string, []byte) ([]byte, error) { return nil, l.wait() }

// Python raises an exception between two of its instructions only. A script
// that is interrupted after the last one before a call that waits must not
// wait.
func TestInterruptJustBeforeAWait(t *testing.T) {
	m := testMachine(t)
	for _, code := range []string{"input()", "time.sleep(1000)", "_spool.call('x', '{}')"} {
		before := 0
		for after := uint64(0); ; after += 5 {
			i, err := m.instantiate(t.Context(), instanceOptions{memory: spareMemory, files: 16})
			if err != nil {
				t.Fatal(err)
			}
			l := &interrupter{recorder: recorder{out: &bytes.Buffer{}}, i: i, after: after}
			i.begin(t.Context(), l, m.files(vfs.NewTree(vfs.NewMemory(nil))))
			if err := i.renew(guest.BootConfig{Cwd: "/"}); err != nil {
				t.Fatal(err)
			}
			res, err := i.run(guest.Script{Code: "import time, _spool\nprint('go')\n" + code})
			if err != nil || res.Lost || res.ExitCode != 130 || res.Exception == nil || res.Exception.Name != "KeyboardInterrupt" {
				t.Errorf("%s, interrupted after %d passes: %+v %v; it wrote %q", code, after, res, err, l.out)
			}
			i.close()
			if l.waiting {
				break
			}
			before++
		}
		if before == 0 {
			t.Errorf("%s was never interrupted before it waited", code)
		}
	}
}

// An interrupt that a script caught is no reason to end a wait.
func TestWaitAfterAnInterrupt(t *testing.T) {
	m := testMachine(t)
	for _, code := range []string{
		"print(sys.stdin.read() == '')",
		"began = time.monotonic(); time.sleep(0.02); print(time.monotonic() - began >= 0.02)",
		"print('no host is connected' in _spool.call('x', '{}'))",
	} {
		i, err := m.instantiate(t.Context(), instanceOptions{memory: spareMemory, files: 16})
		if err != nil {
			t.Fatal(err)
		}
		out := &bytes.Buffer{}
		l := &interrupter{recorder: recorder{out: out}, i: i, after: 1000}
		i.begin(t.Context(), &interruptedOnce{&recorder{out: out}, l}, m.files(vfs.NewTree(vfs.NewMemory(nil))))
		if err := i.renew(guest.BootConfig{Cwd: "/"}); err != nil {
			t.Fatal(err)
		}
		res, err := i.run(guest.Script{Code: "import sys, time, _spool\ntry:\n    print('go')\n    while True: pass\nexcept KeyboardInterrupt: pass\n" + code})
		if err != nil || res.Lost || res.ExitCode != 0 || out.String() != "go\nTrue\n" {
			t.Errorf("%s: %+v %v; it wrote %q", code, res, err, out)
		}
		i.close()
	}
}

// interruptedOnce interrupts a script once after it printed "go", and lets it
// wait as a recorder does.
type interruptedOnce struct {
	*recorder
	by *interrupter
}

func (l *interruptedOnce) Write(s guest.Stream, p []byte) { l.by.Write(s, p) }
func (l *interruptedOnce) Pending() signal                { return l.by.Pending() }
