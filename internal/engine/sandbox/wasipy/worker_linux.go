package wasipy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
	"github.com/spool-run/spool/internal/fdpass"
	"github.com/spool-run/spool/internal/isolate"
	"golang.org/x/sys/unix"
)

// The descriptors a worker starts with.
const (
	workerControl = 3 + iota
	workerCode
	workerLibrary
	workerImage
)

// workerHello is what a worker is told as its argument.
type workerHello struct {
	Compiled string `json:"compiled"` // directory of compiled code
	Image    image  `json:"image"`
}

// The verbs of a worker.
const (
	verbWork    = "work"
	verbPrepare = "prepare"
	verbRenew   = "renew"
	verbTry     = "try" // to leave the cell of a worker
)

// workerGC is how much garbage a worker may have, in percent of what is in use:
// little, because what is in use is much if it has many interpreters.
const workerGC = 25

// Work runs a worker process until its parent is gone, with the arguments that
// [Config].Worker was called with. It returns the exit code.
func Work(args []string) int {
	if len(args) != 2 {
		fmt.Fprintln(os.Stderr, "sandbox worker: this is not for you to call")
		return 2
	}
	var err error
	switch args[0] {
	case verbPrepare:
		err = prepareHere(args[1])
	case verbRenew:
		err = renewHere(args[1])
	case verbWork:
		err = work(args[1])
	case verbTry:
		return isolate.TryCell(args[1], confine)
	default:
		err = fmt.Errorf("unknown verb %q", args[0])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "sandbox worker:", err)
		return 1
	}
	return 0
}

// prepareHere fills a directory, and tells how it gets on.
func prepareHere(dir string) error {
	out := json.NewEncoder(os.Stdout)
	return fill(context.Background(), dir, func(p guest.Progress) { _ = out.Encode(p) })
}

// work executes scripts until the parent is gone.
func work(arg string) error {
	var hello workerHello
	if err := json.Unmarshal([]byte(arg), &hello); err != nil {
		return fmt.Errorf("decode the argument: %w", err)
	}
	code, err := mapFile(os.NewFile(workerCode, "code"))
	if err != nil {
		return err
	}
	library, err := mapFile(os.NewFile(workerLibrary, "library"))
	if err != nil {
		return err
	}
	m, err := newMachine(context.Background(), hello.Compiled, code.bytes, library.bytes)
	if err != nil {
		return err
	}
	im := hello.Image
	im.file = os.NewFile(workerImage, "image")
	if err := im.open(); err != nil {
		return err
	}
	m.image = &im
	pagemap()
	if err := confine(); err != nil {
		return fmt.Errorf("confine the worker: %w", err)
	}
	debug.SetGCPercent(workerGC)
	debug.FreeOSMemory()
	m.spares.Fill()
	// The parent waits for this byte.
	if _, err := unix.Write(workerControl, []byte{1}); err != nil {
		return fmt.Errorf("tell the parent: %w", err)
	}
	for {
		// It takes one thread for the life of the worker.
		fds, err := fdpass.Receive(workerControl, 2) // the socket of a lane, and its window
		if errors.Is(err, io.EOF) {
			return nil // the parent is gone, or has no use for us
		}
		if err != nil {
			return fmt.Errorf("receive a lane: %w", err)
		}
		fd, shared := fds[0], fds[1]
		w, err := openWindow(shared)
		unix.Close(shared)
		if err != nil {
			return err
		}
		l, err := newLane(fd, w, false)
		if err != nil {
			return err
		}
		go serveLane(m, l)
	}
}

// serveLane executes the scripts that come on a lane, one at a time.
func serveLane(m *machine, l *lane) {
	defer l.close()
	var r *localRunner
	defer func() {
		if r != nil {
			r.close()
		}
	}()
	far := &remote{lane: l}
	for {
		kind, b, err := l.recv(patient)
		if err != nil {
			return
		}
		switch kind {
		case frameForget:
			if r != nil {
				r.close()
				r = nil
			}
		case frameInterrupt, frameKill, frameAnswer, frameBell: // to a script that was over by then
		case frameRun:
			var req runRequest
			if json.Unmarshal(b, &req) != nil {
				return
			}
			if req.Config != nil {
				if r != nil {
					r.close()
				}
				r = &localRunner{machine: m, config: *req.Config, fs: m.files(vfs.NewClient(far.File))}
			}
			if r == nil || !serveRun(r, req, far) {
				return
			}
		default:
			return
		}
	}
}

// serveRun executes one script and says whether the lane is still good.
func serveRun(r *localRunner, req runRequest, far *remote) bool {
	ctx := context.Background()
	if req.Left > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, req.Left)
		defer cancel()
	}
	far.stopped, far.pending, far.heard, far.looked = false, false, 0, time.Now()
	r.meter = startMeter()
	res, err := r.runOn(ctx, req.Script, far)
	resp := runResponse{Result: res, Used: r.meter.stop()}
	far.stopped = true // no host answers between scripts
	if err != nil {
		resp.Error = err.Error()
	}
	b, err := json.Marshal(resp)
	if err != nil || far.lane.send(frameEnd, b) != nil {
		return false
	}
	return true
}
