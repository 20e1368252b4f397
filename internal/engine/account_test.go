package engine

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/spool-run/spool"
)

// What one process used that is not known makes the sum unknown.
func TestAccount(t *testing.T) {
	var a Account
	if u := a.Used(); u != nil {
		t.Errorf("without a process: %+v", u)
	}
	a.Add(&spool.ProcessUse{UserUs: 1, SystemUs: 2, PeakMemory: 30})
	a.Add(&spool.ProcessUse{UserUs: 10, SystemUs: 20, PeakMemory: 5})
	if diff := cmp.Diff(&spool.ProcessUse{UserUs: 11, SystemUs: 22, PeakMemory: 30}, a.Used()); diff != "" {
		t.Error(diff)
	}
	a.Add(nil)
	if u := a.Used(); u != nil {
		t.Errorf("with an unknown process: %+v", u)
	}
}
