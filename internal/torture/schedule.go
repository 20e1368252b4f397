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

// Fault is something that goes wrong on purpose.
type Fault string

// The faults. The first two are done to a connection, worker to a process of
// this machine; the others need a server that was started for the purpose.
const (
	Cut     Fault = "cut"     // reset a connection, in mid-frame mostly
	Stall   Fault = "stall"   // stop reading from one for a while
	Worker  Fault = "worker"  // SIGKILL a worker
	Server  Fault = "server"  // SIGKILL the server and start it again
	Keeper  Fault = "keeper"  // SIGKILL the process that keeps the runs
	Upgrade Fault = "upgrade" // SIGKILL the server and start another binary
	Disk    Fault = "disk"    // fill the disk for a while
)

// Faults are all of them.
var Faults = []Fault{Cut, Stall, Worker, Server, Keeper, Upgrade, Disk}

// ParseFaults reads a list of faults.
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

// weights say how often a fault is chosen among those of its lane.
var weights = map[Fault]int{Cut: 12, Stall: 1, Worker: 8, Server: 10, Keeper: 2, Upgrade: 3, Disk: 1}

// Step is one fault of the schedule.
type Step struct {
	Fault Fault
	Pause time.Duration    // before it
	Dir   netcut.Direction // of what is counted, or stalled
	Bytes int64            // a cut waits for so many; zero cuts at once
	Hold  time.Duration    // how long it lasts, or how long a cut waits for its bytes
	Pick  uint64           // chooses whom it befalls
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

// serverLane is the lane of the faults that are not of one connection.
const serverLane = -1

// Schedule returns the faults of a lane: of a connection by its number, or of
// the server if that is negative. It follows from the seed alone and has no
// end.
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
