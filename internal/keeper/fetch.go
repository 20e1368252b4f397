package keeper

// fetchState says how a mirror gets the next update of its run. In state fetchPolling
// the keeper is asked, by one request at a time.
type fetchState uint8

const (
	fetchIdle    fetchState = iota // no update is under way
	fetchFirst                     // the keeper sends the first update without being asked
	fetchPolling                   // the keeper is asked
	fetchStates  = iota
)

// fetchEvent changes the fetchState of a mirror.
type fetchEvent uint8

const (
	fetchStarted fetchEvent = iota // this process has started the run
	fetchNeeded                    // a reader needs an event that the mirror does not have
	fetchLacking                   // an update came or failed; a reader still needs an event
	fetchDone                      // an update came or failed; no reader needs an event
	fetchEvents  = iota
)

// fetchRefused in fetchTransitions means that the event does not apply to the
// state, which stays as it is.
const fetchRefused fetchState = 0xff

// fetchTransitions are all transitions of a mirror.
var fetchTransitions = [fetchStates][fetchEvents]fetchState{
	fetchIdle: {
		fetchStarted: fetchFirst,
		fetchNeeded:  fetchPolling,
		fetchLacking: fetchRefused, // nothing was under way
		fetchDone:    fetchRefused,
	},
	fetchFirst: {
		fetchStarted: fetchRefused,
		fetchNeeded:  fetchFirst,
		fetchLacking: fetchPolling,
		fetchDone:    fetchIdle,
	},
	fetchPolling: {
		fetchStarted: fetchRefused, // a reader was first
		fetchNeeded:  fetchPolling,
		fetchLacking: fetchPolling,
		fetchDone:    fetchIdle,
	},
}

// step applies an event. It reports whether the event was accepted, and whether
// the mirror must begin to ask the keeper.
func (s *fetchState) step(e fetchEvent) (accepted, poll bool) {
	from, to := *s, fetchTransitions[*s][e]
	if to == fetchRefused {
		return false, false
	}
	*s = to
	return true, to == fetchPolling && from != fetchPolling
}
