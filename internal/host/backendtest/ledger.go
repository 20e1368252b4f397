package backendtest

import (
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
)

// burn spends more processor time than a clock could miss.
const burn = `i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done`

// hog holds more memory than a process that starts others.
const hog = `head -c 400000000 /dev/zero | tail -n 1 | wc -c`

// ended waits for the end of a run and returns its ledger, by all ways to ask for
// its description.
func ended(t *testing.T, b spool.Backend, r *spool.Run) *spool.Ledger {
	t.Helper()
	if _, err := r.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	info, err := b.Stat(t.Context(), r.ID())
	if err != nil {
		t.Fatal(err)
	}
	if info.Ledger == nil {
		t.Fatalf("run %s ended as %v without a ledger", r.ID(), info.Outcome)
	}
	for listed, err := range b.List(t.Context(), spool.Filter{Prefix: r.ID()}) {
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(info.Ledger, listed.Ledger); diff != "" {
			t.Errorf("the ledger in a list differs: %s", diff)
		}
	}
	return info.Ledger
}

// ledgers checks what the ledger of a process says, and that a live one has none.
func ledgers(t *testing.T, b spool.Backend) {
	spec := sh(burn + `; ` + hog + `; read line; echo "got $line"`)
	spec.Stdin = true
	r := start(t, b, spec)
	info, err := b.Stat(t.Context(), r.ID())
	if err != nil {
		t.Fatal(err)
	}
	if info.Ledger != nil {
		t.Errorf("a live run has the ledger %+v", info.Ledger)
	}
	if _, err := r.Send(t.Context(), spool.Input{Kind: spool.InputStdin, Bytes: []byte("hello\n")}); err != nil {
		t.Fatal(err)
	}
	l := ended(t, b, r)
	p := l.Processes
	if p == nil || p.UserUs+p.SystemUs < time.Millisecond.Microseconds() {
		t.Fatalf("processor time: %+v", p)
	}
	var own syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &own); err != nil {
		t.Fatal(err)
	}
	known := own.Maxrss < 400_000_000>>10 // if this process starts others
	if (known || p.PeakMemory != 0) && (p.PeakMemory < 400_000_000 || p.PeakMemory > 1<<32) {
		t.Errorf("a peak of %d bytes, and tail held 400 MB", p.PeakMemory)
	}
	if diff := cmp.Diff(&spool.Ledger{Processes: p, InputBytes: 6}, l); diff != "" {
		t.Error(diff)
	}

	// What is not known of a small process is not said: less than the process
	// that started it uses.
	l = ended(t, b, start(t, b, sh("exit 3")))
	if l.Processes == nil || known && l.Processes.PeakMemory > 400_000_000 {
		t.Errorf("a shell that exits used %+v", l.Processes)
	}
}

// ledgerLimits checks that limits are named, each once.
func ledgerLimits(t *testing.T, b spool.Backend) {
	tests := []struct {
		script string
		limits spool.Limits
		want   []string
	}{
		{"sleep 1000", spool.Limits{Wall: 50 * time.Millisecond}, []string{"timeout"}},
		{"sleep 1000", spool.Limits{Idle: 50 * time.Millisecond}, []string{"idle_timeout"}},
		{`i=0; while [ $i -lt 500 ]; do echo 0123456789; i=$((i+1)); done`, spool.Limits{OutputBytes: 2048}, []string{"output_limit"}},
		{"true", spool.Limits{Wall: time.Hour}, nil},
	}
	for _, tt := range tests {
		spec := sh(tt.script)
		spec.Limits = tt.limits
		if diff := cmp.Diff(tt.want, ended(t, b, start(t, b, spec)).Limits); diff != "" {
			t.Errorf("%s with %+v: %s", tt.script, tt.limits, diff)
		}
	}
}

// ledgerTurns checks the ledger of a kernel: turns, bytes of cells, processor time
// and a limit of a turn.
func ledgerTurns(t *testing.T, b spool.Backend) {
	k := startKernel(t, b, `{}`)
	k.want("sum(range(1000000))", "499999500000")
	k.want("1 + 1", "2")
	turn, err := k.Exec(k.ctx, "", spool.Cell{Code: "while True: pass", TimeoutMs: 100})
	if err != nil {
		t.Fatal(err)
	}
	if done, err := turn.Wait(k.ctx); err != nil || done.Outcome != spool.TurnTimeout {
		t.Fatalf("the cell ended as %+v, %v", done, err)
	}
	if err := k.Kill(k.ctx); err != nil {
		t.Fatal(err)
	}
	l := ended(t, b, k.Run)
	if l.Processes == nil || l.Processes.UserUs < 1000 {
		t.Errorf("processor time: %+v", l.Processes)
	}
	if l.Turns != 3 || l.InputBytes < int64(len("sum(range(1000000))1 + 1while True: pass")) || l.Tokens != nil {
		t.Errorf("%d turns with %d bytes, tokens %v", l.Turns, l.InputBytes, l.Tokens)
	}
	if diff := cmp.Diff([]string{"turn_timeout"}, l.Limits); diff != "" {
		t.Error(diff)
	}
}
