package host

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/spool-run/spool"
)

// TestRepeatedControlWaits checks that a control which is repeated while the first is
// under way waits for it, and is done if that fails.
func TestRepeatedControlWaits(t *testing.T) {
	for _, fails := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			var ids controlIDs
			begun, wrong, ends := 0, errors.New("wrong"), make(chan error)
			control := func() error {
				return ids.once(t.Context(), "same", func() error {
					begun++
					return <-ends
				})
			}
			results := make(chan error, 2)
			for range 2 {
				go func() { results <- control() }()
				synctest.Wait()
			}
			if begun != 1 || len(results) != 0 {
				t.Fatalf("%d began and %d ended, want one that is under way", begun, len(results))
			}
			if fails {
				ends <- wrong
				if err := <-results; !errors.Is(err, wrong) {
					t.Errorf("the first: %v", err)
				}
			}
			ends <- nil
			for range cap(results) - begun + 1 {
				if err := <-results; err != nil {
					t.Error(err)
				}
			}
			if err := control(); err != nil { // it was done
				t.Error(err)
			}
		})
	}
}

// TestControlIDsAreBounded checks that old ids are forgotten and long ones refused.
func TestControlIDsAreBounded(t *testing.T) {
	var ids controlIDs
	done := 0
	for i := range 3 * maxControlIDs {
		for range 2 {
			if err := ids.once(t.Context(), fmt.Sprint(i), func() error { done++; return nil }); err != nil {
				t.Fatal(err)
			}
		}
	}
	if done != 3*maxControlIDs || len(ids.known) != maxControlIDs {
		t.Errorf("%d were done and %d are known", done, len(ids.known))
	}
	err := ids.once(t.Context(), strings.Repeat("x", maxControlIDBytes+1), func() error { return nil })
	if !errors.Is(err, spool.ErrInvalid) {
		t.Errorf("a long id: %v", err)
	}
}
