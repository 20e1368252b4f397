package wasipy

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	crand "crypto/rand"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
	"github.com/tetratelabs/wazero"
	"github.com/tetratelabs/wazero/api"
	"github.com/tetratelabs/wazero/experimental"
)

// loopsPerTick is how many passes of loop headers are between two ticks. It is
// what build/pack put into the code.
const loopsPerTick = 2_000

// safepoints are at least so far apart, and ticks may be closer.
const safepoints = 100 * time.Microsecond

// signal is a request of the caller to the running script.
type signal byte

const (
	nothing   signal = iota
	interrupt        // raise KeyboardInterrupt
	stop             // end, now
)

// link is how an interpreter reaches the host of its script. All of it is
// called from the goroutine that executes the guest.
type link interface {
	Started(guest.Startup)
	Write(s guest.Stream, p []byte)
	// Read and Ask wait. They return errStop if the script has to end, and
	// errInterrupt if it was interrupted while it waited.
	Read(p []byte) (int, error)
	Ask(kind string, payload []byte) ([]byte, error)
	// Pending says what the caller wants, once. It is called often.
	Pending() signal
	// Wait waits for so long, or until something is pending.
	Wait(d time.Duration) signal
}

var (
	errStop      = errors.New("the script was stopped")
	errInterrupt = errors.New("the script was interrupted")
)

var wasInterrupted = guest.Reply{Error: &guest.ReplyError{Code: "EINTR", Message: "interrupted"}}.Encode()

var tooLarge = guest.Reply{Error: &guest.ReplyError{Code: "E2BIG", Message: "the ask or its answer is too large"}}.Encode()

// stopped is how a guest is made to end from within a call it made: it is a
// panic that the runtime unwinds the guest with.
type stopped struct {
	by     guest.EndedBy
	reason string
	code   int // of proc_exit, if by is empty
}

func (s *stopped) Error() string { return "stopped: " + string(s.by) + s.reason }

// instanceOptions are those of one interpreter.
type instanceOptions struct {
	memory uint64 // limit in bytes
	fuel   int64  // limit for each script; zero means none
	files  int    // open at once
}

// instance is one interpreter. One goroutine uses it at a time.
type instance struct {
	scratch guestCall // of the call that the guest makes now
	machine *machine
	o       instanceOptions
	module  api.Module
	cow     *cowMemory
	fuel    api.MutableGlobal
	exports map[string]api.Function
	ctx     *callContext

	fs       vfs.FS
	files    *descriptors
	link     link
	lastMode vfs.Mode
	reply    []byte
	out      output

	start    time.Time // of the clock that now reads
	deadline time.Duration
	next     time.Duration // when a tick is a safepoint again
	waited   time.Duration // time in which the guest did nothing
	spent    int64         // fuel, counted at ticks
	meter    *meter        // of the script that runs

	interrupted bool // and the guest does not know yet
	raised      bool // the guest knows, but its exception may be still to come
	renewed     bool
	recycled    int // how often
}

// instantiate returns a new interpreter: a copy of the image, if there is one.
func (m *machine) instantiate(ctx context.Context, o instanceOptions) (*instance, error) {
	i := &instance{machine: m, o: o, exports: make(map[string]api.Function), start: time.Now()}
	i.ctx = &callContext{Context: context.Background(), instance: i}
	alloc := &cowAllocator{image: m.image, limit: o.memory}
	var err error
	i.module, err = m.runtime.InstantiateModule(experimental.WithMemoryAllocator(ctx, alloc), m.compiled, moduleConfig)
	i.cow = alloc.got
	if err == nil {
		err = alloc.err
	}
	if err != nil {
		i.close()
		return nil, fmt.Errorf("instantiate the interpreter: %w", err)
	}
	var ok bool
	if i.fuel, ok = i.module.ExportedGlobal("sb_fuel").(api.MutableGlobal); !ok {
		i.close()
		return nil, errors.New("instantiate the interpreter: the module has no fuel counter")
	}
	i.files = newDescriptors(o.files)
	return i, nil
}

var moduleConfig = wazero.NewModuleConfig().WithName("").WithStartFunctions()

func (i *instance) close() {
	if i.files != nil {
		i.files.closeAll()
	}
	if i.module != nil {
		_ = i.module.Close(context.Background())
	} else if i.cow != nil {
		i.cow.Free()
	}
}

func (i *instance) memory() *instanceMemory { return &instanceMemory{i.cow, i.module.Memory()} }

// instanceMemory is the memory of an instance as its host sees it.
type instanceMemory struct {
	*cowMemory
	api.Memory
}

// clockStart is what the monotonic clock of a guest begins with.
const clockStart = 1000 * time.Second

// monotonic is the clock of a guest. While its image is made it stands still,
// so that the clocks of all copies begin when they do.
func (i *instance) monotonic() time.Duration {
	if i.machine.image == nil {
		return clockStart
	}
	return clockStart + i.now()
}

func (i *instance) now() time.Duration { return time.Since(i.start) }

// begin connects the interpreter to the host of its script.
func (i *instance) begin(ctx context.Context, l link, fsys vfs.FS) {
	i.link, i.fs = l, fsys
	i.out.reset(l)
	i.deadline = 0
	if d, ok := ctx.Deadline(); ok {
		i.deadline = max(time.Until(d)+i.now(), 1)
	}
	i.waited, i.next = 0, 0
	i.refuel()
}

// refuel begins a new count. The ticks begin with it, so that the same work
// ends at the same tick.
func (i *instance) refuel() {
	i.fuel.Set(loopsPerTick)
	i.spent = 0
}

// tail is the fuel used since the last tick.
func (i *instance) tail() int64 { return loopsPerTick - int64(int32(i.fuel.Get())) }

// tick is called by loops every so often, and says whether to interrupt.
func (i *instance) tick() bool {
	i.spent += loopsPerTick
	if i.o.fuel > 0 && i.spent > i.o.fuel {
		panic(&stopped{by: guest.Fuel, reason: fmt.Sprintf("more than %d units of work", i.o.fuel)})
	}
	now := i.now()
	if now < i.next {
		return false
	}
	i.late(now)
	i.next = now + safepoints
	i.out.tick(now)
	i.heedSignal(i.link.Pending())
	// A guest looks to Go's scheduler like one long call. This is where others
	// get their turn, the collector among them.
	i.meter.yield()
	return i.takeInterrupt()
}

// late stops a guest whose time is over.
func (i *instance) late(now time.Duration) {
	if i.deadline != 0 && now >= i.deadline {
		panic(&stopped{by: guest.Killed, reason: "its time was over"})
	}
}

// heed acts on the error of a call that waited.
func (i *instance) heed(err error) {
	switch {
	case errors.Is(err, errStop):
		i.heedSignal(stop)
	case errors.Is(err, errInterrupt):
		i.heedSignal(interrupt)
	}
}

func (i *instance) heedSignal(s signal) {
	switch s {
	case stop:
		panic(&stopped{by: guest.Killed, reason: "its caller ended it"})
	case interrupt:
		i.interrupted = true
	}
}

// takeInterrupt reports whether to raise KeyboardInterrupt now. An interrupt that
// comes while the interpreter is made ready is for the script.
func (i *instance) takeInterrupt() bool {
	if !i.renewed {
		return false
	}
	was := i.interrupted
	i.interrupted = false
	i.raised = i.raised || was
	return was
}

// exceptionIsDue reports whether the guest knows of an interrupt for which it
// has raised no exception yet. It raises one only between two instructions of
// Python: a call that waits has to return first.
func (i *instance) exceptionIsDue() bool {
	if i.raised {
		due, err := i.call("sb_interrupted")
		i.raised = err == nil && due != 0
	}
	return i.raised
}

// call calls an exported function and returns its result, if it has one.
func (i *instance) call(name string, args ...uint64) (uint64, error) {
	f := i.exports[name]
	if f == nil {
		if f = i.module.ExportedFunction(name); f == nil {
			return 0, fmt.Errorf("the interpreter has no %s", name)
		}
		i.exports[name] = f
	}
	r, err := f.Call(i.ctx, args...)
	if err != nil || len(r) == 0 {
		return 0, err
	}
	return r[0], nil
}

// mustCall calls a function that returns zero if all is well.
func (i *instance) mustCall(name string, args ...uint64) error {
	r, err := i.call(name, args...)
	if err == nil && r != 0 {
		err = fmt.Errorf("%s failed", name)
	}
	i.flush()
	return err
}

// callText calls such a function with strings, each ended by a zero byte.
func (i *instance) callText(name string, texts ...string) error {
	var args []uint64
	for _, t := range texts {
		at, err := i.put(append([]byte(t), 0))
		if err != nil {
			return err
		}
		defer i.free(at)
		args = append(args, at)
	}
	return i.mustCall(name, args...)
}

// put copies bytes into the guest's heap.
func (i *instance) put(b []byte) (uint64, error) {
	at, err := i.call("sb_alloc", uint64(len(b)))
	if err != nil {
		return 0, err
	}
	if at == 0 || !i.module.Memory().Write(uint32(at), b) {
		return 0, errNoMemory
	}
	return at, nil
}

var errNoMemory = errors.New("the guest has no memory left")

func (i *instance) free(at uint64) { _, _ = i.call("sb_free", at) }

// renew makes a copy of the image an interpreter of its own.
func (i *instance) renew(c guest.BootConfig) error {
	var seed [32]byte
	_, _ = crand.Read(seed[:])
	c.Seed = hex.EncodeToString(seed[:])
	b, err := json.Marshal(c)
	if err != nil {
		return fmt.Errorf("encode the configuration: %w", err)
	}
	at, err := i.put(b)
	if err != nil {
		return err
	}
	if err := i.mustCall("sb_renew", at, uint64(len(b))); err != nil {
		return fmt.Errorf("renew the interpreter: %w", err)
	}
	i.free(at)
	i.renewed = true
	return nil
}

// run executes a script. After a result that says Lost, and after an error,
// the instance can only be closed.
func (i *instance) run(s guest.Script) (guest.Result, error) {
	text, err := json.Marshal(s)
	if err != nil {
		return guest.Result{}, fmt.Errorf("encode the script: %w", err)
	}
	var r uint64
	i.raised = false
	i.refuel()
	at, err := i.put(text)
	if err == nil {
		r, err = i.call("sb_run", at, uint64(len(text)))
	}
	i.flush()
	res, err := i.result(r, err)
	if !res.Lost && err == nil {
		i.free(at)
	}
	res.Fuel = i.spent + i.tail()
	res.PeakMemory = int64(i.cow.size)
	return res, err
}

// result says how a script ended.
func (i *instance) result(at uint64, err error) (guest.Result, error) {
	var s *stopped
	switch {
	case errors.As(err, &s) && s.by == "":
		return guest.Result{ExitCode: s.code & 0xff, Lost: true}, nil
	case errors.As(err, &s):
		return guest.Result{ExitCode: guest.ExitKilled, EndedBy: s.by, Reason: s.reason, Lost: true}, nil
	case errors.Is(err, errNoMemory), err == nil && at == 0:
		return guest.Result{ExitCode: guest.ExitKilled, EndedBy: guest.Memory, Reason: "no memory was left to say how it ended", Lost: true}, nil
	case err != nil:
		return guest.Result{ExitCode: guest.ExitKilled, EndedBy: guest.Crashed, Reason: firstLine(err), Lost: true}, nil
	}
	b, ok := i.module.Memory().Read(uint32(at>>32), uint32(at))
	if !ok {
		return guest.Result{Lost: true}, errors.New("the interpreter's result is not in its memory")
	}
	var boot guest.BootResult
	if err := json.Unmarshal(b, &boot); err != nil {
		return guest.Result{Lost: true}, fmt.Errorf("decode the interpreter's result: %w", err)
	}
	return i.translate(boot), nil
}

func (i *instance) translate(b guest.BootResult) guest.Result {
	r := guest.Result{ExitCode: b.ExitCode, Value: b.Value, Exception: b.Exception}
	if b.OutOfMemory {
		r.EndedBy, r.Reason = guest.Memory, fmt.Sprintf("more than %d bytes of memory", i.cow.limit)
	}
	return r
}

func firstLine(err error) string {
	s := err.Error()
	for n, c := range s {
		if c == '\n' {
			return s[:n]
		}
	}
	return s
}
