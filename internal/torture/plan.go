package torture

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"syscall"

	"github.com/spool-run/spool"
)

// Shape is how a worker behaves.
type Shape string

// The shapes of a worker.
const (
	Fast       Shape = "fast"       // writes as fast as it can
	Slow       Shape = "slow"       // rests after every record
	Bursty     Shape = "bursty"     // rests now and then
	Echo       Shape = "echo"       // answers numbered records on its input
	Background Shape = "background" // exits while its children still write
	Endless    Shape = "endless"    // writes until it is killed, as do its children
)

// Plan says what one worker does. It follows from the seed of the torture and
// the number of the run, and goes to the worker as an argument.
type Plan struct {
	Mark     string `json:"mark"` // of the whole torture; found in every argument list
	Run      uint32 `json:"run"`
	Seed     uint64 `json:"seed"` // of the contents
	Shape    Shape  `json:"shape"`
	TTY      bool   `json:"tty,omitempty"`
	Records  int    `json:"records"`            // of each producer, over all streams
	Payload  int    `json:"payload"`            // at most so many bytes in a record
	Children int    `json:"children,omitempty"` // producers beside the leader
	Escape   bool   `json:"escape,omitempty"`   // children fork twice and leave the session
	Exit     int    `json:"exit,omitempty"`
	Signal   int    `json:"signal,omitempty"` // ends itself with it, instead of Exit
	Ledger   string `json:"ledger,omitempty"`
}

// Bounds of what a plan holds.
const (
	maxChildren = 3
	pipeAtomic  = 4096 // what a pipe takes whole, whoever else writes to it
)

// newPlan returns the plan of a run.
func newPlan(seed uint64, run uint32, mark string) Plan {
	r := rand.New(rand.NewPCG(seed, uint64(run)))
	p := Plan{Mark: mark, Run: run, Seed: r.Uint64(), TTY: r.IntN(3) == 0}
	p.Payload = []int{16, 200, 1000, pipeAtomic - headerLen}[r.IntN(4)]
	if p.TTY {
		p.Payload = min(p.Payload, 1000)
	}
	switch n := r.IntN(100); {
	case n < 30:
		p.Shape, p.Records = Fast, 20+r.IntN(300)
	case n < 45:
		p.Shape, p.Records = Slow, 5+r.IntN(40)
	case n < 60:
		p.Shape, p.Records = Bursty, 50+r.IntN(200)
	case n < 75:
		p.Shape, p.Records = Echo, 3+r.IntN(20)
	case n < 90:
		p.Shape, p.Records, p.Children = Background, 5+r.IntN(30), 1+r.IntN(maxChildren)
	default:
		p.Shape = Endless
	}
	if p.Shape == Fast || p.Shape == Bursty || p.Shape == Endless {
		p.Children = max(0, r.IntN(2+maxChildren)-1)
	}
	p.Escape = p.Children > 0 && r.IntN(2) == 0
	if p.Shape == Fast && p.Children == 0 && !p.TTY && r.IntN(4) == 0 {
		p.Payload, p.Records = 100_000, 5+r.IntN(20) // larger than any pipe or chunk
	}
	switch r.IntN(4) {
	case 0:
		p.Signal = int(syscall.SIGKILL)
		if r.IntN(2) == 0 {
			p.Signal = int(syscall.SIGTERM)
		}
	case 1:
	default:
		p.Exit = r.IntN(90)
	}
	return p
}

// code is what the exit should be told as.
func (p *Plan) code() int {
	if p.Signal != 0 {
		return 128 + p.Signal
	}
	return p.Exit
}

// streams are the ones the worker writes to.
func (p *Plan) streams() []spool.Stream {
	switch {
	case p.TTY:
		return []spool.Stream{spool.PTY}
	case p.Shape == Echo:
		return []spool.Stream{spool.Stdout}
	}
	return []spool.Stream{spool.Stdout, spool.Stderr}
}

// records returns how many records a producer writes to the i-th stream, or
// -1 if there is no end to them. They go to the streams in turn.
func (p *Plan) records(i int) int {
	switch p.Shape {
	case Endless:
		return -1
	case Echo:
		return 1 + p.Records // it says that it is ready first
	}
	n := len(p.streams())
	return (p.Records + n - 1 - i) / n
}

// String is the plan as the worker gets it.
func (p *Plan) String() string {
	b, err := json.Marshal(p)
	if err != nil { // plain fields always encode
		panic(err)
	}
	return string(b)
}

// argv is the command of the worker.
func (p *Plan) argv(binary string) []string {
	return []string{binary, WorkerVerb, p.String()}
}

// name names the run in reports.
func (p *Plan) name() string {
	kind := string(p.Shape)
	if p.TTY {
		kind += " pty"
	}
	if p.Children > 0 {
		kind += fmt.Sprintf(" children=%d", p.Children)
	}
	if p.Escape {
		kind += " escape"
	}
	return fmt.Sprintf("%d (%s, exit %d)", p.Run, kind, p.code())
}
