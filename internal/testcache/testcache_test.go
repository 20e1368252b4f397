package testcache

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/spool-run/spool/internal/leaktest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// put is a Fill that writes one file.
func put(_ context.Context, dir string) error {
	return os.WriteFile(filepath.Join(dir, "thing"), nil, 0o644)
}

func has(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "thing"))
	return err == nil
}

// TestIntoInstallsOnce checks that one of many concurrent installs fills the
// directory, and that an incomplete install is replaced.
func TestIntoInstallsOnce(t *testing.T) {
	for name, i := range map[string]Install{
		"renamed":  {Complete: has},
		"in place": {InPlace: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "below", "it")
			if err := os.MkdirAll(filepath.Join(dir, "half"), 0o755); err != nil {
				t.Fatal(err)
			}
			var calls atomic.Int32
			i.Fill = func(ctx context.Context, dir string) error {
				calls.Add(1)
				return put(ctx, dir)
			}
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					if err := i.Into(dir); err != nil {
						t.Error(err)
					}
				})
			}
			wg.Wait()
			if n := calls.Load(); n != 1 {
				t.Errorf("filled %d times", n)
			}
			if _, err := os.Stat(filepath.Join(dir, "half")); err == nil || !has(dir) {
				t.Errorf("half an install is still there: %v", err)
			}
		})
	}
}

// TestIntoFails checks that a failed install leaves no directory that looks
// complete, and that the next install tries again.
func TestIntoFails(t *testing.T) {
	broken := errors.New("no network")
	for name, i := range map[string]Install{
		"there is enough": {},
		"complete":        {Complete: has},
		"in place":        {InPlace: true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "it")
			i.Fill = func(ctx context.Context, dir string) error { return errors.Join(put(ctx, dir), broken) }
			if err := i.Into(dir); !errors.Is(err, broken) || !strings.Contains(err.Error(), "install it") {
				t.Errorf("error %v", err)
			}
			i.Fill = put
			if err := i.Into(dir); err != nil || !has(dir) {
				t.Errorf("the second time: %v", err)
			}
			left, err := filepath.Glob(dir + ".*")
			if err != nil || len(left) != 1 { // the lock
				t.Errorf("left behind: %q, %v", left, err)
			}
		})
	}
	empty := Install{Complete: has, Fill: func(context.Context, string) error { return nil }}
	if err := empty.Into(filepath.Join(t.TempDir(), "it")); err == nil || !strings.Contains(err.Error(), "not complete") {
		t.Errorf("an install of nothing: %v", err)
	}
}

// TestIntoTriesAgain checks that a download that fails is tried again, in an empty
// directory, as often as was said.
func TestIntoTriesAgain(t *testing.T) {
	pause = 0
	broken := errors.New("no network")
	for name, i := range map[string]Install{
		"renamed":  {Complete: has},
		"in place": {InPlace: true},
	} {
		t.Run(name, func(t *testing.T) {
			i.Tries = 3
			for fails, want := range map[int]error{0: nil, 2: nil, 3: broken} {
				calls := 0
				i.Fill = func(ctx context.Context, dir string) error {
					if calls++; has(dir) {
						t.Error("the directory is not empty")
					}
					if err := put(ctx, dir); err != nil || calls > fails {
						return err
					}
					return broken
				}
				err := i.Into(filepath.Join(t.TempDir(), "it"))
				if !errors.Is(err, want) || calls != min(fails+1, 3) {
					t.Errorf("with %d failures: %v after %d tries", fails, err, calls)
				}
			}
		})
	}
}

func TestRunReportsTheError(t *testing.T) {
	if out, err := Run(t.Context(), "echo", "hi"); err != nil || out != "hi\n" {
		t.Errorf("%q, %v", out, err)
	}
	if _, err := Run(t.Context(), "sh", "-c", "echo why; exit 3"); err == nil || !strings.Contains(err.Error(), "why") {
		t.Errorf("error %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Run(ctx, "sleep", "1000"); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
}
