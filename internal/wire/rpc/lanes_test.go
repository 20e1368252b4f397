package rpc

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
)

func TestLanesKeepOrderPerKey(t *testing.T) {
	l := NewLanes(64, 1<<20)
	const keys, each = 10, 200
	var got [keys][]int
	for i := range each {
		for k := range keys {
			l.Go(fmt.Sprint("key ", k), 1, func() { got[k] = append(got[k], i) })
		}
	}
	l.Wait()
	for k := range keys {
		if len(got[k]) != each {
			t.Fatalf("key %d ran %d times", k, len(got[k]))
		}
		for i, v := range got[k] {
			if v != i {
				t.Fatalf("key %d ran as %v", k, got[k])
			}
		}
	}
	if len(l.waiting) != 0 || l.items != 0 || l.bytes != 0 {
		t.Errorf("left over: %d keys, %d items, %d bytes", len(l.waiting), l.items, l.bytes)
	}
}

// A function that waits delays only its own key.
func TestLanesRunConcurrently(t *testing.T) {
	l := NewLanes(64, 1<<20)
	var all sync.WaitGroup
	all.Add(4)
	meet := func() { // returns once all four run
		all.Done()
		all.Wait()
	}
	l.Go("a", 0, meet)
	l.Go("b", 0, meet)
	l.Go("", 0, meet)
	l.Go("", 0, meet)
	l.Wait()
}

func TestLanesAreBounded(t *testing.T) {
	tests := []struct {
		name     string
		items    int
		bytes    int
		size     int
		admitted int
	}{
		{"items", 3, 1 << 20, 1, 3},
		{"bytes", 100, 10, 4, 2},
		{"one that is too large runs alone", 100, 10, 50, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := NewLanes(tt.items, tt.bytes)
				release := make(chan struct{})
				admitted := 0
				done := make(chan struct{})
				go func() {
					defer close(done)
					for range tt.admitted + 1 {
						l.Go("", tt.size, func() { <-release })
						admitted++
					}
				}()
				synctest.Wait()
				if admitted != tt.admitted {
					t.Errorf("%d were admitted, want %d", admitted, tt.admitted)
				}
				close(release)
				<-done
				l.Wait()
			})
		})
	}
}
