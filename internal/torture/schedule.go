package torture

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/spool-run/spool/internal/netcut"
)

// Fault is a kind of injected fault.
type Fault string

// The faults. Cut and Stall apply to a connection, Worker to a process of this
// machine; the others need a server that the torture started.
const (
	Cut     Fault = "cut"     // reset a connection, mostly in mid-frame
	Stall   Fault = "stall"   // stop reading from a connection for a while
	Worker  Fault = "worker"  // SIGKILL a worker
	Server  Fault = "server"  // SIGKILL the server and start it again
	Keeper  Fault = "keeper"  // SIGKILL the keeper
	Upgrade Fault = "upgrade" // SIGKILL the server and start another binary
	Disk    Fault = "disk"    // fill the disk for a while
)

// Faults lists all faults.
var Faults = []Fault{Cut, Stall, Worker, Server, Keeper, Upgrade, Disk}

// ParseFaults parses a comma-separated list of faults.
func ParseFaults(list string) ([]Fault, error) {
	var faults []Fault
	for name := range strings.SplitSeq(list, ",") {
		f := Fault(strings.TrimSpace(name))
		if !slices.Contains(Faults, f) {
			return nil, fmt.Errorf("unknown fault %q", f)
		}
		if !slices.Contains(faults, f) {
			faults = append(faults, f)
		}
	}
	return faults, nil
}

// weights is how often a fault is chosen among those of its lane.
var weights = map[Fault]int{Cut: 12, Stall: 1, Worker: 8, Server: 10, Keeper: 2, Upgrade: 3, Disk: 1}

// Step is one fault of the schedule.
type Step struct {
	Fault Fault
	Pause time.Duration    // before the fault
	Dir   netcut.Direction // direction of the counted or stalled bytes
	Bytes int64            // a cut waits for this many bytes; zero cuts at once
	Hold  time.Duration    // how long the fault lasts, or a cut waits for its bytes
	Pick  uint64           // chooses the target
	Cut   bool             // a stall ends with a cut
	Early bool             // do not wait until the client has caught up
}

func (s Step) String() string {
	at := fmt.Sprintf("+%-6s %s", s.Pause, s.Fault)
	if s.Early && (s.Fault == Cut || s.Fault == Stall) {
		at += " early"
	}
	dir := "to client"
	if s.Dir == netcut.ToServer {
		dir = "to server"
	}
	switch {
	case s.Fault == Cut && s.Bytes == 0:
		return at + " now"
	case s.Fault == Cut:
		return fmt.Sprintf("%s after %d bytes %s, or %s", at, s.Bytes, dir, s.Hold)
	case s.Fault == Stall && s.Cut:
		return fmt.Sprintf("%s %s for %s, then cut", at, dir, s.Hold)
	case s.Fault == Stall:
		return fmt.Sprintf("%s %s for %s", at, dir, s.Hold)
	case s.Fault == Disk:
		return fmt.Sprintf("%s full for %s", at, s.Hold)
	case s.Fault == Worker:
		return fmt.Sprintf("%s %d", at, s.Pick)
	}
	return at
}

// serverLane is the lane of the faults that do not apply to a connection.
const serverLane = -1

// Schedule returns the faults of a lane: of the connection with that number, or
// of the server if it is negative. It depends only on the seed and is endless.
func Schedule(seed uint64, lane int, faults []Fault) iter.Seq[Step] {
	var own []Fault
	for _, f := range faults {
		if (f == Cut || f == Stall) == (lane >= 0) {
			for range weights[f] {
				own = append(own, f)
			}
		}
	}
	return func(yield func(Step) bool) {
		r := rand.New(rand.NewPCG(seed, 1<<62+uint64(lane+1)))
		for len(own) > 0 {
			s := Step{Fault: own[r.IntN(len(own))], Pick: r.Uint64(), Early: r.IntN(4) == 0}
			ms := func(low, high int) time.Duration { return time.Duration(low+r.IntN(high-low)) * time.Millisecond }
			switch s.Fault {
			case Cut:
				s.Pause, s.Hold = ms(0, 60), ms(20, 150)
				switch n := r.IntN(10); {
				case n < 6:
					s.Dir, s.Bytes = netcut.ToClient, 1+r.Int64N(1<<uint(4+r.IntN(13)))
				case n < 8:
					s.Dir, s.Bytes = netcut.ToServer, 1+r.Int64N(1000)
				}
			case Stall:
				s.Pause, s.Hold, s.Cut = ms(0, 100), ms(50, 800), r.IntN(2) == 0
				s.Dir = netcut.ToClient
				if r.IntN(4) == 0 {
					s.Dir = netcut.ToServer
				}
			case Worker:
				s.Pause = ms(50, 500)
			case Disk:
				s.Pause, s.Hold = ms(200, 2000), ms(100, 600)
			default:
				s.Pause = ms(200, 1400)
			}
			if !yield(s) {
				return
			}
		}
	}
}
