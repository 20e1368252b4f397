package cluster_test

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/skiptest"
)

var setClock = flag.Bool("clock", false, "set the clock of this machine back and forth, in TestTortureClock")

// clockRole is the first argument of this program when it sets the clock.
const clockRole = "clock-role"

// clockWrong is how long the clock is wrong at most.
const clockWrong = 10 * time.Second

// clockMain sets the clock of the machine by some time. When its input ends, because
// the process that started it is done or dead, or after clockWrong, it sets the clock right again, by
// the time that has passed.
func clockMain(by string) int {
	d, err := time.ParseDuration(by)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	began := time.Now() // and what the monotonic clock says
	set := func(t time.Time) error {
		ts := unix.NsecToTimespec(t.UnixNano())
		return unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
	}
	if err := set(began.Add(d)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("set")
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = io.Copy(io.Discard, os.Stdin)
	}()
	select {
	case <-ended:
	case <-time.After(clockWrong):
	}
	if err := set(began.Add(time.Since(began))); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// jump has the clock of this machine be wrong while do runs, and for no longer than
// clockWrong. It returns an error if the clock may not be set.
func jump(t *testing.T, by time.Duration, do func()) error {
	t.Helper()
	cmd := exec.Command(os.Args[0], clockRole, by.String())
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = in.Close()
		if err := cmd.Wait(); err != nil {
			t.Logf("the process that sets the clock: %v", err)
		}
	}()
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return fmt.Errorf("the clock of this machine may not be set")
	}
	do()
	return nil
}

// TestTortureClock sets the clock of this machine minutes back and forth while clients
// use the nodes: no node is lost, and nothing else happens.
func TestTortureClock(t *testing.T) {
	if !*setClock {
		t.Skip("the clock of the machine is set with -clock only")
	}
	if err := jump(t, 0, func() {}); err != nil {
		skiptest.Missing(t, "%v", err)
	}
	x := newTorture(t)
	x.survive(func() {
		before := x.nodes[0].list(t)
		for _, by := range []time.Duration{7 * time.Minute, -9 * time.Minute, 3 * time.Minute, -2 * time.Minute} {
			began, wall := time.Now(), time.Now().Round(0)
			if err := jump(t, by, func() {
				t.Logf("%v: the clock is wrong by %v", time.Since(x.began).Round(time.Millisecond), time.Now().Round(0).Sub(wall).Round(time.Minute))
				x.starts(4)
			}); err != nil {
				t.Fatal(err)
			}
			if off := time.Now().Round(0).Sub(wall) - time.Since(began); off.Abs() > time.Second {
				t.Errorf("the clock was set back wrong by %v", off)
			}
			x.starts(4)
		}
		for name, n := range x.nodes[0].list(t) {
			if n.State != "up" || n.Epoch != before[name].Epoch {
				t.Errorf("node %s is %s in epoch %d, and was in %d", name, n.State, n.Epoch, before[name].Epoch)
			}
		}
	})
}
