package wasipy_test

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/wasipy"
	"github.com/spool-run/spool/python"
)

// TestReportsPrewarm prepares a machine that has nothing, twice.
func TestReportsPrewarm(t *testing.T) {
	dir := t.TempDir()
	prepare := func() guest.Prewarm {
		b := wasipy.New(wasipy.Config{Worker: wasipy.BuiltWorker, CacheDir: dir})
		defer b.Close()
		var mu sync.Mutex
		var steps []guest.Progress
		pre, err := b.Prepare(context.Background(), guest.Setup{Progress: func(p guest.Progress) {
			mu.Lock()
			defer mu.Unlock()
			steps = append(steps, p)
		}})
		if err != nil {
			t.Fatal(err)
		}
		if pre.Executed != (len(steps) > 0) {
			t.Errorf("executed %v, told %v", pre.Executed, steps)
		}
		if again, err := b.Prepare(context.Background(), guest.Setup{}); err != nil || again.Executed || again.Duration != 0 {
			t.Errorf("again: %+v %v", again, err)
		}
		return pre
	}
	first := prepare()
	if !first.Executed || first.Reason != guest.ReasonExecuted || first.Duration <= 0 || first.Version != wasipy.Version || len(first.Protections) < 3 {
		t.Errorf("first: %+v", first)
	}
	t.Logf("first use: %v", first.Duration)
	second := prepare()
	if second.Executed || second.Reason != guest.ReasonCached || second.Duration != 0 || second.CacheDir != first.CacheDir {
		t.Errorf("second: %+v", second)
	}
	// Every change to the files in between is noticed.
	if err := os.WriteFile(filepath.Join(first.CacheDir, "image"), []byte("poison"), 0o600); err != nil {
		t.Fatal(err)
	}
	if third := prepare(); !third.Executed {
		t.Errorf("after the image was replaced: %+v", third)
	}
	b := wasipy.New(wasipy.Config{CacheDir: dir})
	defer b.Close()
	found := b.Doctor(context.Background())
	if len(found) == 0 || !found[0].OK {
		t.Fatalf("the doctor finds %+v", found)
	}
	prepared := false
	for _, f := range found {
		if f.Name == "" || f.Text == "" {
			t.Errorf("a finding says nothing: %+v", f)
		}
		prepared = prepared || f.OK && strings.Contains(f.Text, first.CacheDir)
	}
	if !prepared {
		t.Errorf("the doctor does not find what is prepared in %s: %+v", first.CacheDir, found)
	}
}

func TestPreparesOnceForManyCallers(t *testing.T) {
	ready, err := shared.get(t, python.IsolateStrict).Prepare(context.Background(), guest.Setup{})
	if err != nil {
		t.Fatal(err)
	}
	dir := wasipy.CompiledOnly(t, ready.CacheDir)
	var all sync.WaitGroup
	var mu sync.Mutex
	executed := 0
	for range 2 {
		b := wasipy.New(wasipy.Config{Worker: wasipy.BuiltWorker, CacheDir: dir})
		defer b.Close()
		for range 3 {
			all.Go(func() {
				pre, err := b.Prepare(context.Background(), guest.Setup{})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				if pre.Executed {
					executed++
				}
			})
		}
	}
	all.Wait()
	if executed < 1 || executed > 2 {
		t.Errorf("%d callers prepared", executed)
	}
}

func TestStrictIsolationWithoutWorkersIsRefused(t *testing.T) {
	b := wasipy.New(wasipy.Config{CacheDir: cacheDir(t)})
	defer b.Close()
	_, err := b.Open(context.Background(), guest.Options{FS: memory(), Cwd: "/", Setup: guest.Setup{Isolation: python.IsolateStrict}})
	if u := (*guest.UnavailableError)(nil); !asUnavailable(err, &u) {
		t.Errorf("%v", err)
	}
}

func TestClosedBackendRefuses(t *testing.T) {
	b := wasipy.New(wasipy.Config{CacheDir: cacheDir(t)})
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Open(context.Background(), guest.Options{FS: memory(), Cwd: "/"}); err == nil {
		t.Error("it opened a context")
	}
}

// A cache that another program filled has no compiled code that workers of
// this one can use. It is added.
func TestCacheOfAnotherProgram(t *testing.T) {
	b := wasipy.New(wasipy.Config{Worker: wasipy.BuiltWorker, CacheDir: cacheDir(t)})
	defer b.Close()
	pre, err := b.Prepare(context.Background(), guest.Setup{})
	if err != nil {
		t.Fatal(err)
	}
	dir := wasipy.CompiledOnly(t, pre.CacheDir)
	b = wasipy.New(wasipy.Config{Worker: wasipy.BuiltWorker, CacheDir: dir})
	defer b.Close()
	if pre, err = b.Prepare(context.Background(), guest.Setup{}); err != nil {
		t.Fatal(err)
	}
	compiled, err := filepath.Glob(filepath.Join(pre.CacheDir, "compiled", "*"))
	if err != nil || len(compiled) == 0 {
		t.Fatal(compiled, err)
	}
	for _, c := range compiled {
		if err := os.RemoveAll(c); err != nil {
			t.Fatal(err)
		}
	}
	o := guest.Options{FS: memory(), Cwd: "/"}
	o.Isolation = python.IsolateStrict
	c, err := b.Open(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	prints(t, c, "print(1)", "1\n")
}
