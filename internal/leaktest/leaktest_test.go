package leaktest

import (
	"strings"
	"testing"
	"time"
)

func TestMain(m *testing.M) { Main(m) }

func left(end <-chan struct{}) { <-end }

// TestFind checks that a goroutine that takes its time to end is no leak, and
// that one that stays is named.
func TestFind(t *testing.T) {
	Check(t)
	end := make(chan struct{})
	go left(end)
	if err := find(0); err == nil || !strings.Contains(err.Error(), "leaktest.left") {
		t.Errorf("a goroutine that stays: %v", err)
	}
	time.AfterFunc(time.Second, func() { close(end) })
	if code := Code(0); code != 0 {
		t.Errorf("a goroutine that ends late: exit code %d", code)
	}
	if code := Code(3); code != 3 {
		t.Errorf("exit code %d of tests that failed with 3", code)
	}
}
