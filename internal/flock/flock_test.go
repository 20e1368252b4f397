//go:build unix

package flock_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/spool-run/spool/internal/flock"
)

func TestTryLockIsExclusive(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	a, b := open(t, path), open(t, path)
	if ok, err := flock.TryLock(a); !ok || err != nil {
		t.Fatalf("first lock: %v, %v", ok, err)
	}
	if ok, err := flock.TryLock(b); ok || err != nil {
		t.Fatalf("second exclusive lock: %v, %v", ok, err)
	}
	if ok, err := flock.TryShare(b); ok || err != nil {
		t.Fatalf("shared lock beside an exclusive one: %v, %v", ok, err)
	}
	if err := flock.Unlock(a); err != nil {
		t.Fatal(err)
	}
	if ok, err := flock.TryLock(b); !ok || err != nil {
		t.Fatalf("lock after unlock: %v, %v", ok, err)
	}
}

func TestSharedLocksCoexist(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	for range 2 {
		if ok, err := flock.TryShare(open(t, path)); !ok || err != nil {
			t.Fatalf("shared lock: %v, %v", ok, err)
		}
	}
}

func TestOpenWaitsForClose(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := flock.Open(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	// Each form of waiting: in the system call, and by attempts.
	for _, ctx := range []context.Context{context.Background(), t.Context()} {
		second := make(chan *os.File)
		go func() {
			f, err := flock.Open(ctx, path)
			if err != nil {
				t.Error(err)
			}
			second <- f
		}()
		select {
		case <-second:
			t.Fatal("locked while another file held the lock")
		default:
		}
		if err := first.Close(); err != nil {
			t.Fatal(err)
		}
		first = <-second
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
}

func TestOpenEndsWithContext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	f, err := flock.Open(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := flock.Open(ctx, path); !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want context.Canceled", err)
	}
}

func TestErrorNamesFile(t *testing.T) {
	f := open(t, filepath.Join(t.TempDir(), "lock"))
	f.Close()
	if _, err := flock.TryLock(f); err == nil {
		t.Fatal("locked a closed file")
	}
}

func open(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = f.Close() })
	return f
}
