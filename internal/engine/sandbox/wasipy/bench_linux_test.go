package wasipy_test

import (
	"context"
	"fmt"
	"math"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/skiptest"
	"github.com/spool-run/spool/python"
)

// isolations names where interpreters live.
var isolations = []struct {
	name string
	i    python.Isolation
}{{"worker", python.IsolateStrict}, {"in process", python.IsolateNone}}

// BenchmarkFirstByte measures from the request to the first printed byte of a
// fresh interpreter, beside a native one.
func BenchmarkFirstByte(b *testing.B) {
	for _, w := range isolations {
		b.Run(w.name, func(b *testing.B) {
			c := open(b, w.i, guest.Options{Fresh: true})
			run(b, c, "print('hello')")
			var took []time.Duration
			for b.Loop() {
				h := newHost()
				began := time.Now()
				if res := runWith(b, c, "print('hello')", h); res.ExitCode != 0 {
					b.Fatalf("%+v %s", res, h.stderr())
				}
				took = append(took, h.first.Sub(began))
			}
			report(b, took)
		})
	}
	b.Run("native", func(b *testing.B) {
		native := nativePython(b)
		var took []time.Duration
		for b.Loop() {
			began := time.Now()
			cmd := exec.Command(native, "-I", "-c", "print('hello')")
			out, err := cmd.StdoutPipe()
			if err != nil {
				b.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				b.Fatal(err)
			}
			var p [16]byte
			if _, err := out.Read(p[:]); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(began))
			_ = cmd.Wait()
		}
		report(b, took)
	})
}

func report(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[0].Microseconds()), "min-µs")
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

// BenchmarkThroughput measures fresh interpreters on all processors.
func BenchmarkThroughput(b *testing.B) {
	for _, w := range isolations {
		b.Run(w.name, func(b *testing.B) {
			began := time.Now()
			b.RunParallel(func(pb *testing.PB) {
				c := open(b, w.i, guest.Options{Fresh: true})
				for pb.Next() {
					h := newHost()
					if res, err := c.Run(context.Background(), guest.Script{Code: "print('hello')"}, h); err != nil || res.ExitCode != 0 {
						b.Errorf("%+v %v", res, err)
						return
					}
				}
			})
			b.ReportMetric(float64(b.N)/time.Since(began).Seconds(), "runs/s")
		})
	}
}

// work is what BenchmarkCPU measures: calls, floats, and dictionaries with
// strings.
var work = map[string]string{
	"fib": "def fib(n): return n if n < 2 else fib(n-1) + fib(n-2)\nfib(23)",
	"nbody": `
def advance(n, b):
    for _ in range(n):
        for i in range(5):
            x, y, z, vx, vy, vz, m = b[i]
            for j in range(i + 1, 5):
                X, Y, Z, VX, VY, VZ, M = b[j]
                dx, dy, dz = x - X, y - Y, z - Z
                mag = 0.01 / (dx * dx + dy * dy + dz * dz + 0.1) ** 1.5
                vx -= dx * M * mag
                vy -= dy * M * mag
                vz -= dz * M * mag
            b[i] = [x + 0.01 * vx, y + 0.01 * vy, z + 0.01 * vz, vx, vy, vz, m]
advance(2500, [[float(i + k) for k in range(7)] for i in range(5)])
`,
	"dict": `
d = {}
for i in range(120000):
    k = "key" + str(i % 5000)
    d[k] = d.get(k, 0) + i
s = sorted(d.items(), key=lambda p: (p[1], p[0]))
t = ",".join(k for k, v in s).split(",")
`,
}

// BenchmarkCPU measures how long work takes within a script.
func BenchmarkCPU(b *testing.B) {
	const timed = "import time\nt = time.perf_counter()\nexec(compile(%q, 'work', 'exec'), {})\nprint(time.perf_counter() - t)"
	for _, name := range []string{"fib", "nbody", "dict"} {
		code := fmt.Sprintf(timed, work[name])
		seconds := func(b *testing.B, out string) float64 {
			s, err := strconv.ParseFloat(strings.TrimSpace(out), 64)
			if err != nil {
				b.Fatal(err)
			}
			return s
		}
		var ours, native float64
		b.Run(name+"/worker", func(b *testing.B) {
			c := open(b, python.IsolateStrict, guest.Options{Fresh: true})
			ours = math.Inf(1)
			for b.Loop() {
				res, h := run(b, c, code)
				if res.ExitCode != 0 {
					b.Fatalf("%+v %s", res, h.stderr())
				}
				ours = min(ours, seconds(b, h.stdout()))
			}
			b.ReportMetric(ours*1e3, "min-ms")
		})
		b.Run(name+"/native", func(b *testing.B) {
			native = math.Inf(1)
			native3 := nativePython(b)
			for b.Loop() {
				out, err := exec.Command(native3, "-I", "-c", code).Output()
				if err != nil {
					b.Fatal(err)
				}
				native = min(native, seconds(b, string(out)))
			}
			b.ReportMetric(native*1e3, "min-ms")
			if ours > 0 {
				b.ReportMetric(ours/native, "times-native")
			}
		})
	}
}

// BenchmarkStat measures a stat from within a script, of which there are many.
func BenchmarkStat(b *testing.B) {
	for _, w := range isolations {
		b.Run(w.name, func(b *testing.B) {
			c := open(b, w.i, guest.Options{})
			const code = "import os, time\nos.stat('/tmp')\nl = []\nfor _ in range(3000):\n    t = time.perf_counter_ns()\n    os.stat('/tmp')\n    l.append(time.perf_counter_ns() - t)\nl.sort()\nprint(l[1500])"
			best := math.Inf(1)
			for b.Loop() {
				res, h := run(b, c, code)
				ns, err := strconv.ParseFloat(strings.TrimSpace(h.stdout()), 64)
				if err != nil {
					b.Fatalf("%+v %s", res, h.stderr())
				}
				best = min(best, ns/1e3)
			}
			b.ReportMetric(best, "p50-µs")
		})
	}
}

// BenchmarkStop measures how long after its limit a busy script is over.
func BenchmarkStop(b *testing.B) {
	for _, w := range isolations {
		for _, name := range []string{"while True", "regex", "power", "hash", "sleep", "copies"} {
			b.Run(w.name+"/"+name, func(b *testing.B) {
				c := open(b, w.i, guest.Options{Fresh: true})
				var took []time.Duration
				for b.Loop() {
					ctx, cancel := context.WithTimeout(context.Background(), 40*time.Millisecond)
					deadline, _ := ctx.Deadline()
					if res, err := c.Run(ctx, guest.Script{Code: runaways[name]}, newHost()); err != nil || res.EndedBy != guest.Killed {
						b.Fatalf("%+v %v", res, err)
					}
					took = append(took, time.Since(deadline))
					cancel()
				}
				report(b, took)
			})
		}
	}
}

// nativePython is the native interpreter itself, past any script that chooses one.
func nativePython(b *testing.B) string {
	out, err := exec.Command("python3", "-c", "import sys; print(sys.executable)").Output()
	if err != nil {
		skiptest.Missing(b, "no native interpreter: %v", err)
	}
	return strings.TrimSpace(string(out))
}
