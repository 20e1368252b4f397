package failpoint_test

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/spool-run/spool/internal/failpoint"
)

func TestMain(m *testing.M) {
	if os.Getenv(failpoint.Variable) != "" {
		if err := failpoint.FromEnv(); err != nil {
			os.Stderr.WriteString(err.Error())
			os.Exit(2)
		}
		for range 3 {
			if err := failpoint.Inject("here"); err != nil {
				os.Exit(3)
			}
			os.Stdout.WriteString(".")
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func TestEnable(t *testing.T) {
	if err := failpoint.Inject("p"); err != nil {
		t.Fatalf("nothing is armed: %v", err)
	}
	disable := failpoint.Enable("p", 2, failpoint.Fail(io.ErrNoProgress))
	for hit, want := range []error{nil, io.ErrNoProgress, nil} {
		if err := failpoint.Inject("p"); !errors.Is(err, want) {
			t.Errorf("hit %d: %v, want %v", hit+1, err, want)
		}
		if err := failpoint.Inject("other"); err != nil {
			t.Errorf("another point: %v", err)
		}
	}
	disable()

	first := failpoint.Enable("p", 0, failpoint.Fail(io.EOF))
	second := failpoint.Enable("p", 0, failpoint.Fail(io.ErrNoProgress))
	first() // is not armed any more
	for range 2 {
		if err := failpoint.Inject("p"); !errors.Is(err, io.ErrNoProgress) {
			t.Errorf("every hit: %v", err)
		}
	}
	second()
	if err := failpoint.Inject("p"); err != nil {
		t.Errorf("disarmed: %v", err)
	}
}

func TestStall(t *testing.T) {
	until := make(chan struct{})
	defer failpoint.Enable("p", 0, failpoint.Stall(until))()
	passed := make(chan error)
	go func() { passed <- failpoint.Inject("p") }()
	select {
	case err := <-passed:
		t.Fatalf("passed: %v", err)
	default:
	}
	close(until)
	if err := <-passed; err != nil {
		t.Error(err)
	}
}

func TestFromEnv(t *testing.T) {
	for env, want := range map[string]struct {
		out    string
		code   int
		signal syscall.Signal
	}{
		"other=kill":               {out: "..."},
		"here=kill@2":              {out: ".", signal: syscall.SIGKILL},
		"here=fail@3":              {out: "..", code: 3},
		"; x=stall@9 ; here=fail;": {code: 3},
		"here=explode":             {code: 2},
		"here":                     {code: 2},
		"here=kill@0":              {code: 2},
	} {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), failpoint.Variable+"="+env)
		out, _ := cmd.Output() // its end is checked below
		status := cmd.ProcessState.Sys().(syscall.WaitStatus)
		switch {
		case string(out) != want.out:
			t.Errorf("%s: passed %q, want %q", env, out, want.out)
		case want.signal != 0 && status.Signal() != want.signal, want.signal == 0 && status.ExitStatus() != want.code:
			t.Errorf("%s: %v, want %+v", env, cmd.ProcessState, want)
		}
	}
}

func BenchmarkOff(b *testing.B) {
	for b.Loop() {
		if err := failpoint.Inject("store.append"); err != nil {
			b.Fatal(err)
		}
	}
}
