package keeper

import "testing"

// TestFetchTransitions checks every event in every state: the next state, and
// whether the mirror must start to poll.
func TestFetchTransitions(t *testing.T) {
	const refused, poll = false, true
	tests := []struct {
		state    fetchState
		event    fetchEvent
		accepted bool
		next     fetchState
		poll     bool
	}{
		{fetchIdle, fetchStarted, true, fetchFirst, false},
		{fetchIdle, fetchNeeded, true, fetchPolling, poll},
		{fetchIdle, fetchLacking, refused, fetchIdle, false},
		{fetchIdle, fetchDone, refused, fetchIdle, false},

		{fetchFirst, fetchStarted, refused, fetchFirst, false},
		{fetchFirst, fetchNeeded, true, fetchFirst, false},
		{fetchFirst, fetchLacking, true, fetchPolling, poll},
		{fetchFirst, fetchDone, true, fetchIdle, false},

		{fetchPolling, fetchStarted, refused, fetchPolling, false},
		{fetchPolling, fetchNeeded, true, fetchPolling, false},
		{fetchPolling, fetchLacking, true, fetchPolling, false},
		{fetchPolling, fetchDone, true, fetchIdle, false},
	}
	if len(tests) != fetchStates*fetchEvents {
		t.Errorf("%d of %d transitions are tested", len(tests), fetchStates*fetchEvents)
	}
	for _, tt := range tests {
		s := tt.state
		accepted, poll := s.step(tt.event)
		if accepted != tt.accepted || s != tt.next || poll != tt.poll {
			t.Errorf("state %d, event %d: accepted %v, state %d, poll %v; want %v, %d, %v", tt.state, tt.event, accepted, s, poll, tt.accepted, tt.next, tt.poll)
		}
	}
}
