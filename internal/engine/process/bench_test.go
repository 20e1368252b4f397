//go:build linux

package process

import (
	"io"
	"os/exec"
	"runtime/debug"
	"slices"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/launch"
)

// discard is a sink that counts.
type discard struct {
	seq   spool.Seq
	bytes int64
}

func (d *discard) Append(e spool.Event) (spool.Seq, error) {
	d.seq++
	d.bytes += int64(len(e.Bytes))
	return d.seq, nil
}

func (d *discard) Hold()    {}
func (d *discard) Release() {}

func (d *discard) PutBlob(string, io.Reader) (spool.Blob, error) { return spool.Blob{}, nil }

// median reports the middle of what a benchmark's rounds took.
func median(b *testing.B, took []time.Duration) {
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-µs")
}

func BenchmarkStart(b *testing.B) {
	b.Run("os-exec", func(b *testing.B) {
		var took []time.Duration
		for b.Loop() {
			begin := time.Now()
			if err := exec.Command("/usr/bin/true").Run(); err != nil {
				b.Fatal(err)
			}
			took = append(took, time.Since(begin))
		}
		median(b, took)
	})
	for _, mode := range []launch.TreeMode{launch.TreeCgroup, launch.TreeWalk} {
		b.Run(string(mode), func(b *testing.B) {
			e := open(b, Options{Tree: mode})
			var took []time.Duration
			for b.Loop() {
				begin := time.Now()
				s, err := e.Start(b.Context(), spool.Spec{Argv: []string{"/usr/bin/true"}}, new(discard))
				if err != nil {
					b.Fatal(err)
				}
				s.Wait()
				took = append(took, time.Since(begin))
			}
			median(b, took)
		})
	}
}

func BenchmarkOutput(b *testing.B) {
	// A heap with nothing but this in it would be collected every 4 MiB,
	// and that would be what is measured.
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	e := open(b, Options{})
	const size = 1 << 30
	b.SetBytes(size)
	for b.Loop() {
		var out discard
		s, err := e.Start(b.Context(), spool.Spec{Argv: []string{"/usr/bin/head", "-c", "1G", "/dev/zero"}}, &out)
		if err != nil {
			b.Fatal(err)
		}
		s.Wait()
		if out.bytes != size {
			b.Fatalf("%d bytes", out.bytes)
		}
	}
}

func BenchmarkTerminal(b *testing.B) {
	e := open(b, Options{})
	const size = 64 << 20
	b.SetBytes(size)
	for b.Loop() {
		var out discard
		spec := shell("stty raw -echo; head -c 64M /dev/zero")
		spec.TTY = &spool.Size{}
		s, err := e.Start(b.Context(), spec, &out)
		if err != nil {
			b.Fatal(err)
		}
		s.Wait()
		if out.bytes != size {
			b.Fatalf("%d bytes", out.bytes)
		}
		b.ReportMetric(float64(out.bytes)/float64(out.seq), "bytes/event")
	}
}

func BenchmarkChatty(b *testing.B) {
	e := open(b, Options{})
	const writes = 100_000
	b.SetBytes(writes * 100)
	for b.Loop() {
		var out discard
		s, err := e.Start(b.Context(), spool.Spec{Argv: []string{"/usr/bin/perl", "-e", `$x = "x" x 100; for (1..100000) { syswrite(STDOUT, $x) }`}}, &out)
		if err != nil {
			b.Fatal(err)
		}
		s.Wait()
		if out.bytes != writes*100 {
			b.Fatalf("%d bytes", out.bytes)
		}
		b.ReportMetric(writes/float64(out.seq), "writes/event")
	}
}
