//go:build linux

package process

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/enginetest"
	"github.com/spool-run/spool/internal/polltest"
)

func TestRandomBytesAreIdentical(t *testing.T) {
	data := make([]byte, 50<<20)
	src := rand.NewChaCha8([32]byte{1})
	if _, err := src.Read(data); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "data")
	if err := os.WriteFile(file, data, 0o600); err != nil {
		t.Fatal(err)
	}
	want := sha256.Sum256(data)
	e := open(t, Options{})
	for _, tt := range []struct {
		stream spool.Stream
		script string
		tty    *spool.Size
		lines  bool
	}{
		{spool.Stdout, "cat " + file, nil, false},
		{spool.Stdout, "cat " + file, nil, true},
		{spool.Stderr, "cat " + file + " >&2", nil, false},
		{spool.PTY, "stty raw -echo; cat " + file, &spool.Size{}, false},
	} {
		spec := shell(tt.script)
		spec.TTY, spec.LineBuffered = tt.tty, tt.lines
		s, log := start(t, e, spec)
		enginetest.Wait(t, s)
		if got := sha256.Sum256(log.Output(t, tt.stream)); got != want {
			t.Errorf("%s: %d bytes, not those that were written", tt.stream, len(log.Output(t, tt.stream)))
		}
		events := log.All(t)
		if k := events[len(events)-1].Kind; k != spool.KindExited {
			t.Errorf("%s: the last event is %s", tt.stream, k)
		}
		t.Logf("%s: %d events", tt.stream, len(events))
	}
}

// The end of a terminal's output comes before the exit, however it is
// buffered on its way.
func TestTerminalOutputPrecedesExit(t *testing.T) {
	e := open(t, Options{})
	for range 200 {
		spec := shell("echo last")
		spec.TTY = &spool.Size{}
		s, log := start(t, e, spec)
		enginetest.Wait(t, s)
		events := log.All(t)
		if events[len(events)-1].Kind != spool.KindExited || string(log.Output(t, spool.PTY)) != "last\r\n" {
			t.Fatalf("the log is\n%s", log.Dump(t))
		}
	}
}

// A program that writes to a pipe in blocks shows its lines at once with
// LineBuffered, and its input and errors stay pipes.
func TestLineBuffered(t *testing.T) {
	e := open(t, Options{})
	spec := shell(`[ -t 1 ] && ! [ -t 0 ] && ! [ -t 2 ] && echo tty
		grep --color=never o; echo oops >&2`)
	spec.Stdin, spec.LineBuffered = true, true
	s, log := start(t, e, spec)
	for _, in := range []string{"one\r\n", "two\n"} {
		if err := s.Send(t.Context(), spool.Input{Kind: spool.InputStdin, Bytes: []byte(in)}); err != nil {
			t.Fatal(err)
		}
		log.UntilOutput(t, spool.Stdout, in)
	}
	if err := s.Control(t.Context(), spool.Control{Op: spool.ControlResize, Size: spool.Size{Rows: 5, Cols: 5}}); !errors.Is(err, spool.ErrUnsupported) {
		t.Errorf("a resize of a terminal that only stdout has: %v", err)
	}
	if err := s.Send(t.Context(), spool.Input{Kind: spool.InputEOF}); err != nil {
		t.Fatal(err)
	}
	enginetest.Wait(t, s)
	if got := string(log.Output(t, spool.Stdout)); got != "tty\none\r\ntwo\n" {
		t.Errorf("stdout is %q", got)
	}
	if got := string(log.Output(t, spool.Stderr)); got != "oops\n" {
		t.Errorf("stderr is %q", got)
	}
}

// The details of a process with a terminal have its size.
func TestDetailsHaveTheSize(t *testing.T) {
	e := open(t, Options{})
	spec := shell("read x")
	spec.TTY = &spool.Size{Rows: 30, Cols: 100}
	s, _ := start(t, e, spec)
	details := func() string { return string(s.(engine.Describer).Details()) }
	if got := details(); got != `{"terminal":{"rows":30,"cols":100}}` {
		t.Errorf("the details are %s", got)
	}
	if err := s.Control(t.Context(), spool.Control{Op: spool.ControlResize, Size: spool.Size{Rows: 50, Cols: 132}}); err != nil {
		t.Fatal(err)
	}
	if err := s.Send(t.Context(), spool.Input{Kind: spool.InputStdin, Bytes: []byte("\n")}); err != nil {
		t.Fatal(err)
	}
	enginetest.Wait(t, s)
	if got := details(); got != `{"terminal":{"rows":50,"cols":132}}` {
		t.Errorf("the details after the end are %s", got)
	}
	s, _ = start(t, e, shell("true"))
	if got := details(); got != "" {
		t.Errorf("the details without a terminal are %s", got)
	}
	enginetest.Wait(t, s)
}

func TestChattyOutputCoalesces(t *testing.T) {
	e := open(t, Options{})
	const writes = 20_000
	line := strings.Repeat("x", 99)
	s, log := start(t, e, spool.Spec{Env: path, Argv: []string{"perl", "-e", fmt.Sprintf(`for (1..%d) { syswrite(STDOUT, "%s\n") }`, writes, line)}})
	if got := enginetest.Wait(t, s); got.Code != 0 {
		t.Fatalf("outcome is %v: %s", got, log.Output(t, spool.Stderr))
	}
	if got := len(log.Output(t, spool.Stdout)); got != writes*100 {
		t.Errorf("%d bytes", got)
	}
	events := len(log.All(t)) - 1
	t.Logf("%d writes became %d events", writes, events)
	if events > writes/20 {
		t.Errorf("%d writes became %d events", writes, events)
	}
}

func Test500AtOnce(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run(string(mode), func(t *testing.T) {
			e := open(t, Options{Tree: mode})
			const n = 500
			var wg sync.WaitGroup
			sessions := make([]engine.Session, n)
			logs := make([]*enginetest.Log, n)
			before := threads(t)
			for i := range n {
				wg.Go(func() {
					spec := shell(fmt.Sprintf("echo up; read x; echo $x; exit %d", i%256))
					spec.Stdin = true
					log := enginetest.NewLog()
					s, err := e.Start(t.Context(), spec, log)
					if err != nil {
						t.Error(err)
						return
					}
					sessions[i], logs[i] = s, log
					log.UntilOutput(t, spool.Stdout, "up\n")
				})
			}
			wg.Wait()
			if t.Failed() {
				return
			}
			t.Logf("%d threads before, %d with %d processes", before, threads(t), n)
			if got := threads(t) - before; got > 100 {
				t.Errorf("%d threads for %d idle processes", got, n)
			}
			for i, s := range sessions {
				wg.Go(func() {
					if err := s.Send(t.Context(), spool.Input{Kind: spool.InputStdin, Bytes: fmt.Appendln(nil, i)}); err != nil {
						t.Error(err)
						return
					}
					if got := s.Wait(); got != (spool.Outcome{Kind: spool.Exited, Code: i % 256}) {
						t.Errorf("run %d: outcome is %v", i, got)
					}
					if got := string(logs[i].Output(t, spool.Stdout)); got != fmt.Sprintf("up\n%d\n", i) {
						t.Errorf("run %d: output is %q", i, got)
					}
				})
			}
			wg.Wait()
		})
	}
}

func threads(t testing.TB) int {
	list, err := os.ReadDir("/proc/self/task")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func TestNothingLeaks(t *testing.T) {
	for _, mode := range modes(t) {
		t.Run(string(mode), func(t *testing.T) {
			count := func() int {
				list, err := os.ReadDir("/proc/self/fd")
				if err != nil {
					t.Fatal(err)
				}
				return len(list)
			}
			before, routines := count(), runtime.NumGoroutine()
			e := open(t, Options{Tree: mode, Spares: 4})
			round := func() {
				for _, tty := range []*spool.Size{nil, {}} {
					spec := shell("echo $0; read x")
					spec.Stdin, spec.TTY = true, tty
					s, log := start(t, e, spec)
					log.Until(t, "output", func(e spool.Event) bool { return e.Kind == spool.KindOutput })
					if err := s.Send(t.Context(), spool.Input{Kind: spool.InputStdin, Bytes: []byte("\n")}); err != nil {
						t.Fatal(err)
					}
					enginetest.Wait(t, s)
					for _, argv := range [][]string{{"no-such"}, {"/etc/passwd"}, {"/no/such"}} {
						if _, err := e.Start(t.Context(), spool.Spec{Argv: argv, TTY: tty, Stdin: true}, log); err == nil {
							t.Fatal("started")
						}
					}
				}
			}
			for range 20 {
				round()
			}
			if err := e.Close(); err != nil { // which lets go of what is kept for the next start
				t.Fatal(err)
			}
			polltest.Until(t, "no more descriptors than before", func() bool { return count() <= before })
			polltest.Until(t, "no more goroutines than before", func() bool { return runtime.NumGoroutine() <= routines })
		})
	}
}

// Whole lines of both streams arrive, in order, whatever the load.
func TestStreamsHammer(t *testing.T) {
	e := open(t, Options{})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			s, log := start(t, e, shell("i=0; while [ $i -lt 3000 ]; do echo out $i; echo err $i >&2; i=$((i+1)); done"))
			s.Wait()
			for stream, word := range map[spool.Stream]string{spool.Stdout: "out", spool.Stderr: "err"} {
				var want bytes.Buffer
				for i := range 3000 {
					fmt.Fprintln(&want, word, i)
				}
				if got := log.Output(t, stream); !bytes.Equal(got, want.Bytes()) {
					t.Errorf("%s: %d bytes, want %d", stream, len(got), want.Len())
				}
			}
		})
	}
	wg.Wait()
}
