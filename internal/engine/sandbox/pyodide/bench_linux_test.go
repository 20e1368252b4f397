//go:build amd64 || arm64

package pyodide

import (
	"bytes"
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/pyodidetest"
)

// median of durations, in milliseconds.
func median(list []time.Duration) float64 {
	slices.Sort(list)
	return float64(list[len(list)/2].Microseconds()) / 1000
}

// firstByte is a host that notes when the first byte of output comes.
type firstByte struct {
	*testHost
	at time.Time
}

func (h *firstByte) Write(s guest.Stream, p []byte) {
	if h.at.IsZero() {
		h.at = time.Now()
	}
	h.testHost.Write(s, p)
}

// benchFresh measures from the request to the first byte of a fresh
// interpreter, and what memory it has then for itself.
func benchFresh(b *testing.B, spares int, s guest.Setup, code string) {
	back := New(Options{Dist: pyodidetest.Dist(b), Spares: spares})
	defer back.Close()
	ctx := context.Background()
	c, err := back.Open(ctx, guest.Options{Setup: s, FS: newTree(b), Cwd: "/workspace", Fresh: true})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	var first, all []time.Duration
	for b.Loop() {
		h := &firstByte{testHost: newHost()}
		t := time.Now()
		r, err := c.Run(ctx, guest.Script{Code: code}, h)
		if err != nil || r.ExitCode != 0 {
			b.Fatalf("%+v, %v\n%s", r, err, h.stderr())
		}
		all = append(all, time.Since(t))
		first = append(first, h.at.Sub(t))
	}
	b.ReportMetric(median(first), "first-p50-ms")
	b.ReportMetric(float64(first[0].Microseconds())/1000, "first-min-ms")
	b.ReportMetric(median(all), "done-p50-ms")

	live, err := back.Open(ctx, guest.Options{Setup: s, FS: newTree(b), Cwd: "/workspace"})
	if err != nil {
		b.Fatal(err)
	}
	defer live.Close()
	if _, err := live.Run(ctx, guest.Script{Code: code}, newHost()); err != nil {
		b.Fatal(err)
	}
	n, err := live.(*box).private(ctx)
	if err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(n)/(1<<20), "private-MB")
}

func BenchmarkFresh(b *testing.B) { benchFresh(b, DefaultSpares, guest.Setup{}, "print('x')") }

// BenchmarkFreshOnDemand is the same without a process that waits ready.
func BenchmarkFreshOnDemand(b *testing.B) { benchFresh(b, -1, guest.Setup{}, "print('x')") }

func BenchmarkFreshNumpy(b *testing.B) {
	benchFresh(b, DefaultSpares, guest.Setup{Packages: []string{"numpy"}, Wheels: pyodidetest.Wheels(b)}, "import numpy\nprint(numpy.arange(3))")
}

// BenchmarkPlain is Pyodide in Node as its documentation shows it.
func BenchmarkPlain(b *testing.B) {
	dist := pyodidetest.Dist(b)
	script := "const { loadPyodide } = require(" + strconv.Quote(filepath.Join(dist, "pyodide.js")) + ");" +
		"loadPyodide().then((py) => py.runPython(\"print('x')\"));"
	var first []time.Duration
	for b.Loop() {
		t := time.Now()
		out, err := exec.Command("node", "-e", script).Output()
		if err != nil || !bytes.Contains(out, []byte("x")) {
			b.Fatalf("%q, %v", out, err)
		}
		first = append(first, time.Since(t))
	}
	b.ReportMetric(median(first), "first-p50-ms")
}

// BenchmarkStat is os.stat of a file in a script.
func BenchmarkStat(b *testing.B) {
	back := New(Options{Dist: pyodidetest.Dist(b)})
	defer back.Close()
	tree := newTree(b)
	if err := tree.WriteFile("/workspace/a.txt", []byte("hello"), 0o644); err != nil {
		b.Fatal(err)
	}
	c, err := back.Open(context.Background(), guest.Options{FS: tree, Cwd: "/workspace"})
	if err != nil {
		b.Fatal(err)
	}
	defer c.Close()
	for b.Loop() {
		h := newHost()
		_, err := c.Run(context.Background(), guest.Script{Code: `
import os, time
def p50(f, n):
    for _ in range(100): f()
    times = []
    for _ in range(n):
        t = time.perf_counter(); f(); times.append(time.perf_counter() - t)
    return sorted(times)[n // 2] * 1e6
def read():
    with open("/workspace/a.txt") as f: f.read()
print(p50(lambda: os.stat("/workspace/a.txt"), 2000), p50(read, 500))
`}, h)
		if err != nil {
			b.Fatal(err)
		}
		f := strings.Fields(h.stdout())
		if len(f) != 2 {
			b.Fatal(h.stdout(), h.stderr())
		}
		for i, unit := range []string{"stat-p50-us", "open-read-p50-us"} {
			v, err := strconv.ParseFloat(f[i], 64)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(v, unit)
		}
	}
}
