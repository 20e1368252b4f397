package torture

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"syscall"

	"github.com/spool-run/spool"
)

// Shape is the behaviour of a worker.
type Shape string

// The shapes of a worker.
const (
	Fast       Shape = "fast"       // writes as fast as it can
	Slow       Shape = "slow"       // pauses after every record
	Bursty     Shape = "bursty"     // pauses now and then
	Echo       Shape = "echo"       // answers numbered records on its input
	Background Shape = "background" // exits while its children still write
	Endless    Shape = "endless"    // writes until it is killed, as do its children
)

// Plan describes one worker. It is derived from the seed of the torture and the
// number of the run, and is passed to the worker as an argument.
type Plan struct {
	Mark     string `json:"mark"` // identifies the torture; part of every argument list
	Run      uint32 `json:"run"`
	Seed     uint64 `json:"seed"` // of the payloads
	Shape    Shape  `json:"shape"`
	TTY      bool   `json:"tty,omitempty"`
	Records  int    `json:"records"`            // per producer, over all streams
	Payload  int    `json:"payload"`            // maximum bytes per record
	Children int    `json:"children,omitempty"` // number of producers beside the leader
	Escape   bool   `json:"escape,omitempty"`   // children fork twice and leave the session
	Exit     int    `json:"exit,omitempty"`
	Signal   int    `json:"signal,omitempty"` // the worker ends itself with this signal instead of Exit
	Ledger   string `json:"ledger,omitempty"`
}

// Limits of a plan.
const (
	maxChildren = 3
	pipeAtomic  = 4096 // a pipe writes this much atomically
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

// code is the expected exit code.
func (p *Plan) code() int {
	if p.Signal != 0 {
		return 128 + p.Signal
	}
	return p.Exit
}

// streams returns the streams that the worker writes to.
func (p *Plan) streams() []spool.Stream {
	switch {
	case p.TTY:
		return []spool.Stream{spool.PTY}
	case p.Shape == Echo:
		return []spool.Stream{spool.Stdout}
	}
	return []spool.Stream{spool.Stdout, spool.Stderr}
}

// records returns how many records a producer writes to the i-th stream, or -1
// if they are endless. Records go to the streams in turn.
func (p *Plan) records(i int) int {
	switch p.Shape {
	case Endless:
		return -1
	case Echo:
		return 1 + p.Records // it first reports that it is ready
	}
	n := len(p.streams())
	return (p.Records + n - 1 - i) / n
}

// String is the encoding that the worker decodes.
func (p *Plan) String() string {
	b, err := json.Marshal(p)
	if err != nil { // encoding plain fields never fails
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
