package host

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/blockfile"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/process"
	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/store"
)

func TestHostCompresses(t *testing.T) {
	dir := t.TempDir()
	open := func(after time.Duration) *Host {
		h, err := Open(Options{Dir: dir, FileAfter: time.Hour, Retention: store.Retention{Compress: after}, Engines: map[string]NewEngine{
			spool.EngineProcess: func(owner string) (engine.Engine, error) { return process.New(process.Options{Owner: owner}) },
		}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { h.Close() })
		return h
	}
	read := func(h *Host) string {
		out, err := spool.Attach(h, "lines").Output(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return string(out)
	}
	h := open(-1)
	run, err := spool.Start(t.Context(), h, spool.Spec{ID: "lines", Argv: []string{"seq", "100000"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := read(h)
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	h = open(time.Millisecond)
	if err := h.Register(); err != nil {
		t.Fatal(err)
	}
	polltest.Until(t, "the log is compressed", func() bool {
		files, err := filepath.Glob(filepath.Join(dir, "runs", "lines.*.seg"))
		if err != nil || len(files) != 1 {
			t.Fatalf("%q, %v", files, err)
		}
		b, err := os.ReadFile(files[0])
		return err == nil && strings.HasPrefix(string(b), blockfile.Magic)
	})
	if read(h) != want {
		t.Error("the output differs")
	}
}

func TestCompressionRests(t *testing.T) {
	h, err := Open(Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer h.Close()
	rest := h.restBetween(compressRest)
	const work = 20 * time.Millisecond
	<-time.After(work)
	began := time.Now()
	rest()
	if d := time.Since(began); d < compressRest*work {
		t.Errorf("%v after %v of work", d, work)
	}
}
