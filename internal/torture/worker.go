package torture

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/spool-run/spool"
)

// WorkerVerb is the argument that makes the binary a worker.
const WorkerVerb = "torture-worker"

// Exit codes of a worker that failed; no plan uses them.
const (
	exitBroken   = 97
	exitBadInput = 98
)

// lingerFor is how long an endless child stays when its output is closed.
const lingerFor = 10 * time.Minute

// Work runs a worker: its arguments are a plan and, for a child, the number of
// its producer. A negative number is a child that starts the real child and
// exits. Work returns the exit code.
func Work(args []string) int {
	if err := perform(args); err != nil {
		if errors.Is(err, errBadInput) {
			return exitBadInput
		}
		fmt.Fprintln(os.Stderr, err)
		return exitBroken
	}
	return 0
}

var errBadInput = errors.New("the input is not what was planned")

func perform(args []string) error {
	var p Plan
	if len(args) == 5 && args[0] == upkeepRole {
		return keepUp(upkeepJob(args[1]), args[2], args[3], args[4])
	}
	if len(args) == 0 || len(args) > 2 {
		return errors.New("only spool torture starts workers")
	}
	if err := json.Unmarshal([]byte(args[0]), &p); err != nil {
		return fmt.Errorf("read plan: %w", err)
	}
	if len(args) == 2 {
		n, err := strconv.Atoi(args[1])
		if err != nil {
			return fmt.Errorf("read producer: %w", err)
		}
		if n < 0 {
			return startChild(args[0], -n, true)
		}
		w, err := newWriter(&p, uint8(n))
		if err != nil {
			return err
		}
		err = w.produce()
		if p.Shape == Endless {
			time.Sleep(lingerFor) // its streams are closed; the server must kill it
		}
		return err
	}
	return lead(&p)
}

// lead runs the leader.
func lead(p *Plan) error {
	if p.TTY {
		if _, err := term.MakeRaw(0); err != nil {
			return fmt.Errorf("make the terminal raw: %w", err)
		}
	}
	w, err := newWriter(p, 0)
	if err != nil {
		return err
	}
	w.ledger.setPid(os.Getpid())
	// The end of the terminal's session must not end the children, which
	// inherit this.
	signal.Ignore(syscall.SIGHUP)
	children, err := startChildren(p)
	if err != nil {
		return err
	}
	if p.Shape == Echo {
		err = w.echo(os.Stdin)
	} else {
		err = w.produce()
	}
	if err != nil {
		return err
	}
	if p.Shape != Background {
		for _, c := range children {
			if err := c.Wait(); err != nil {
				return fmt.Errorf("wait for child: %w", err)
			}
		}
	}
	if p.Signal != 0 {
		if err := syscall.Kill(os.Getpid(), syscall.Signal(p.Signal)); err != nil {
			return err
		}
		time.Sleep(time.Hour) // until the signal arrives; blocking without a timer is a deadlock
	}
	os.Exit(p.Exit)
	return nil
}

// startChildren starts the other producers. The parents of those that escape
// have exited when this returns.
func startChildren(p *Plan) ([]*exec.Cmd, error) {
	var children []*exec.Cmd
	for n := 1; n <= p.Children; n++ {
		if p.Escape {
			cmd, err := command(p.String(), -n, false)
			if err == nil {
				err = cmd.Run()
			}
			if err != nil {
				return nil, fmt.Errorf("start escaping child: %w", err)
			}
			continue
		}
		cmd, err := command(p.String(), n, false)
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			return nil, fmt.Errorf("start child: %w", err)
		}
		children = append(children, cmd)
	}
	return children, nil
}

func startChild(plan string, n int, escape bool) error {
	cmd, err := command(plan, n, escape)
	if err != nil {
		return err
	}
	return cmd.Start()
}

// command returns a child of the worker, in a new session if it escapes.
func command(plan string, n int, escape bool) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, WorkerVerb, plan, strconv.Itoa(n))
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: escape}
	return cmd, nil
}

// writer writes the records of one producer.
type writer struct {
	plan     *Plan
	producer uint8
	fds      []int
	numbers  []uint32
	ledger   *ledger
	buf      []byte
	pace     *rand.Rand
}

func newWriter(p *Plan, producer uint8) (*writer, error) {
	l, err := openLedger(p.Ledger)
	if err != nil {
		return nil, err
	}
	w := &writer{plan: p, producer: producer, ledger: l, pace: rand.New(rand.NewPCG(p.Seed, 1<<63|uint64(producer)))}
	for _, s := range p.streams() {
		fd := 1
		if s == spool.Stderr {
			fd = 2
		}
		w.fds = append(w.fds, fd)
	}
	w.numbers = make([]uint32, len(w.fds))
	l.begin(producer)
	return w, nil
}

// write writes the next record of a stream, in one system call if possible, and
// adds it to the ledger.
func (w *writer) write(stream uint8, kind uint8, arg uint32) error {
	w.numbers[stream]++
	r := record{run: w.plan.Run, producer: w.producer, stream: stream, kind: kind, number: w.numbers[stream], arg: arg}
	r.payload = w.plan.payload(nil, r.producer, stream, r.number)
	w.buf = appendRecord(w.buf[:0], &r)
	if w.plan.TTY && w.plan.Children > 0 {
		// A signal cuts a write to a terminal short, and another producer's
		// record could come between.
		if err := w.ledger.lock(); err != nil {
			return fmt.Errorf("take turns: %w", err)
		}
		defer func() { _ = w.ledger.unlock() }() // unlocking an open file does not fail
	}
	for b := w.buf; len(b) > 0; {
		n, err := syscall.Write(w.fds[stream], b)
		if errors.Is(err, syscall.EINTR) || errors.Is(err, syscall.EAGAIN) {
			continue
		}
		if err != nil {
			return fmt.Errorf("write record %d: %w", r.number, err)
		}
		b = b[n:]
	}
	w.ledger.wrote(w.producer, stream, r.number)
	return nil
}

// produce writes all records of the plan.
func (w *writer) produce() error {
	for i := 0; w.plan.Shape == Endless || i < w.plan.Records; i++ {
		if err := w.write(uint8(i%len(w.fds)), kindData, 0); err != nil {
			return err
		}
		if d := w.rest(i); d > 0 {
			time.Sleep(d)
		}
	}
	return nil
}

// rest is the pause after a record.
func (w *writer) rest(i int) time.Duration {
	switch w.plan.Shape {
	case Slow:
		return time.Duration(w.pace.IntN(20)) * time.Millisecond
	case Bursty:
		if i%40 == 39 {
			return time.Duration(20+w.pace.IntN(60)) * time.Millisecond
		}
	case Background:
		if w.producer > 0 { // continue after the leader exited
			return time.Duration(w.pace.IntN(15)) * time.Millisecond
		}
	case Endless:
		return time.Duration(w.pace.IntN(4)) * time.Millisecond
	}
	return 0
}

// echo answers every input.
func (w *writer) echo(in io.Reader) error {
	if err := w.write(0, kindReady, 0); err != nil {
		return err
	}
	var buf []byte
	chunk := make([]byte, 64<<10)
	for want := uint32(1); int(want) <= w.plan.Records; {
		_, n, err := parseRecord(buf)
		switch {
		case err == nil && bytes.Equal(buf[:n], w.plan.input(want)):
			buf = buf[n:]
			if err := w.write(0, kindEcho, want); err != nil {
				return err
			}
			want++
			continue
		case !errors.Is(err, errShort):
			if err := w.write(0, kindBad, want-1); err != nil {
				return err
			}
			return errBadInput
		}
		n, err = in.Read(chunk)
		buf = append(buf, chunk[:n]...)
		if err != nil && n == 0 {
			return fmt.Errorf("read input: %w", err)
		}
	}
	return nil
}
