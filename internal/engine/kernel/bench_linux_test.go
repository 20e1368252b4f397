package kernel

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/pytest"
	"github.com/spool-run/spool/python"
)

func benchEngine(b *testing.B) *Engine {
	b.Helper()
	e, err := New(Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = e.Close() })
	return e
}

func (r *testRun) end() {
	if err := r.Control(context.Background(), spool.Control{Op: spool.ControlKill}); err != nil {
		r.t.Fatal(err)
	}
	r.Wait()
}

func BenchmarkReady(b *testing.B) {
	numpy := pytest.Python(b)
	for _, bb := range []struct {
		name string
		cfg  python.KernelConfig
	}{
		{"plain", python.KernelConfig{Interpreter: testPython(b), Zygote: python.ZygoteOff}},
		{"plain-system", python.KernelConfig{Interpreter: "/usr/bin/python3", Zygote: python.ZygoteOff}},
		{"zygote", python.KernelConfig{Interpreter: testPython(b), Zygote: python.ZygoteWait}},
		{"zygote-numpy", python.KernelConfig{Interpreter: numpy, Zygote: python.ZygoteWait, Preload: []string{"numpy"}}},
		{"zygote-all", python.KernelConfig{Interpreter: numpy, Zygote: python.ZygoteWait, Preload: []string{"numpy", "pandas", "matplotlib.pyplot"}}},
	} {
		b.Run(bb.name, func(b *testing.B) {
			e := benchEngine(b)
			start(b, e, bb.cfg).end()
			var took []time.Duration
			for b.Loop() {
				begin := time.Now()
				r := start(b, e, bb.cfg)
				took = append(took, time.Since(begin))
				b.StopTimer()
				r.end()
				b.StartTimer()
			}
			reportMedian(b, took)
		})
	}
}

func BenchmarkCell(b *testing.B) {
	r := start(b, benchEngine(b), python.KernelConfig{Zygote: python.ZygoteWait})
	r.ok("1+1")
	var took []time.Duration
	for b.Loop() {
		begin := time.Now()
		r.done(r.cell("1+1"))
		took = append(took, time.Since(begin))
	}
	reportMedian(b, took)
}

func reportMedian(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Nanoseconds()), "p50-ns")
	b.ReportMetric(float64(took[len(took)*99/100].Nanoseconds()), "p99-ns")
}

func BenchmarkPrint(b *testing.B) {
	for _, bb := range []struct{ name, code string }{
		{"100k-prints", "for i in range(100000): print('line', i)"},
		{"100MB-1M-lines", "s = 'x' * 99\nfor i in range(1000000): print(s)"},
		{"100MB-1MB-writes", "s = 'x' * 1000000\nimport sys\nfor i in range(100): sys.stdout.write(s)"},
	} {
		b.Run(bb.name, func(b *testing.B) {
			r := start(b, benchEngine(b), python.KernelConfig{Zygote: python.ZygoteWait})
			r.ok("1+1")
			for b.Loop() {
				r.done(r.cell(bb.code))
			}
		})
	}
}

func BenchmarkInterrupt(b *testing.B) {
	r := start(b, benchEngine(b), python.KernelConfig{Zygote: python.ZygoteWait})
	var took []time.Duration
	for b.Loop() {
		b.StopTimer()
		turn := r.cell("print('x', flush=True)\nwhile True: pass")
		r.log.Until(b, "output", func(e spool.Event) bool { return e.Turn == turn && e.Kind == spool.KindOutput })
		b.StartTimer()
		begin := time.Now()
		r.control(spool.Control{Op: spool.ControlInterrupt})
		r.done(turn)
		took = append(took, time.Since(begin))
	}
	reportMedian(b, took)
}
