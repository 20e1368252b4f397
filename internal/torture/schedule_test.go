package torture

import (
	"fmt"
	"testing"
)

// firstSteps returns the first n steps of a schedule as text.
func firstSteps(seed uint64, lane, n int, faults []Fault) (all string) {
	for s := range Schedule(seed, lane, faults) {
		if n--; n < 0 {
			break
		}
		all += s.String() + "\n"
	}
	return all
}

func TestScheduleIsDerivedFromTheSeed(t *testing.T) {
	for lane := serverLane; lane < 4; lane++ {
		a, b := firstSteps(1, lane, 200, Faults), firstSteps(1, lane, 200, Faults)
		if a != b {
			t.Errorf("lane %d differs from itself", lane)
		}
		if a == firstSteps(2, lane, 200, Faults) {
			t.Errorf("lane %d is the same for another seed", lane)
		}
		if a == firstSteps(1, lane+1, 200, Faults) {
			t.Errorf("lane %d is the same as the next", lane)
		}
	}
	if s := firstSteps(1, 0, 1, []Fault{Server}); s != "" {
		t.Errorf("a connection lane has the fault %s", s)
	}
	if a, b := newPlan(1, 5, "m"), newPlan(1, 5, "m"); a != b {
		t.Errorf("plans differ: %v, %v", a, b)
	}
}

func TestParseFaults(t *testing.T) {
	faults, err := ParseFaults("cut, server,cut")
	if err != nil || fmt.Sprint(faults) != "[cut server]" {
		t.Errorf("faults %v, %v", faults, err)
	}
	if _, err := ParseFaults("cut,flood"); err == nil {
		t.Error("flood is accepted")
	}
}
