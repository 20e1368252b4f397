package wasipy

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/fdpass"
	"github.com/spool-run/spool/internal/tail"
	"golang.org/x/sys/unix"
)

// maxErrorText bounds what is kept of what a worker says on its way out.
const maxErrorText = 16 << 10

// startLimit is how long a worker may take to be ready. It is killed then.
const startLimit = 30 * time.Second

// workerGrace is how long a worker may take to be rid of a script that did not
// end in time. It is killed then.
const workerGrace = time.Second

// pool are the workers of a prepared directory.
type pool struct {
	cfg Config
	p   *prepared

	startLimit, workerGrace, imageAge time.Duration

	mu       sync.Mutex
	workers  []*worker
	starting int
	wanting  int       // who is in acquire
	failed   error     // of the last start
	started  sync.Cond // a worker started, or failed to, or a lane is free
	closed   bool
	image    *image // of new workers
	made     time.Time
	renewing bool
	old      []*image // to be closed

	ctx    context.Context // ends with the pool
	cancel context.CancelFunc
	beside sync.WaitGroup // who looks after scripts that did not end, or makes an image
}

// worker is one process. The pool's mu guards it.
type worker struct {
	pool    *pool
	image   *image
	proc    *process
	control *os.File
	free    []*lane // idle
	busy    int     // lanes in use
	dead    bool
	stuck   int           // lanes whose script did not end in time
	waited  chan struct{} // closed when it has ended
}

func newPool(cfg Config, p *prepared) *pool {
	pl := &pool{cfg: cfg, p: p, startLimit: startLimit, workerGrace: workerGrace, imageAge: imageAge, image: p.image}
	pl.ctx, pl.cancel = context.WithCancel(context.Background())
	var err error
	if pl.made, err = imageMade(p.dir); err != nil {
		pl.made = time.Now()
	}
	pl.started.L = &pl.mu
	return pl
}

// use is the exclusive use of a lane.
type use struct {
	*lane
	worker *worker
}

// acquire returns a lane to a worker: one that has nothing to do, else a new
// one, else, if there are as many as there may be, the one with the least to
// do.
func (pl *pool) acquire(ctx context.Context) (*use, error) {
	wake := context.AfterFunc(ctx, func() {
		pl.mu.Lock()
		defer pl.mu.Unlock()
		pl.started.Broadcast()
	})
	defer wake()
	pl.mu.Lock()
	defer pl.mu.Unlock()
	pl.wanting++
	defer func() { pl.wanting-- }()
	for {
		if pl.closed {
			return nil, errClosed
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		best, live := pl.idlest()
		switch {
		case best != nil && (best.busy == 0 || live >= pl.cfg.MaxWorkers):
			u, err := best.lane()
			if err == nil {
				pl.renew()
				return u, nil
			}
			best.kill()
		case pl.failed != nil:
			err := pl.failed
			pl.failed = nil // the next who needs one tries again
			return nil, err
		case live+pl.starting < pl.cfg.MaxWorkers && pl.starting < pl.wanting:
			pl.start()
		default:
			pl.started.Wait()
		}
	}
}

// idlest returns the worker with the least to do, and how many there are to
// choose from. One with a script that does not end may be killed at any time,
// and is not among them; one with an old image is if there is no other.
func (pl *pool) idlest() (best *worker, live int) {
	best, live = pl.idlestOf(func(w *worker) bool { return w.image == pl.image })
	if best == nil {
		best, live = pl.idlestOf(func(w *worker) bool { return w.image != pl.image })
	}
	return best, live
}

func (pl *pool) idlestOf(among func(*worker) bool) (best *worker, live int) {
	for _, w := range pl.workers {
		if w.dead || w.stuck > 0 || !among(w) {
			continue
		}
		live++
		if best == nil || w.busy < best.busy {
			best = w
		}
	}
	return best, live
}

// lane returns a lane of the worker. The pool's mu is held.
func (w *worker) lane() (*use, error) {
	if n := len(w.free); n > 0 {
		l := w.free[n-1]
		w.free = w.free[:n-1]
		w.busy++
		return &use{l, w}, nil
	}
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	shared, fd, err := newWindow()
	if err == nil {
		err = fdpass.Send(int(w.control.Fd()), []byte{1}, theirs, fd)
		unix.Close(fd)
	}
	unix.Close(theirs)
	if err != nil {
		unix.Close(ours)
		return nil, fmt.Errorf("open a lane to a worker: %w", err)
	}
	l, err := newLane(ours, shared, true)
	if err != nil {
		return nil, err
	}
	w.busy++
	return &use{l, w}, nil
}

// keepIdle is how many workers with nothing to do are kept.
const keepIdle = 2

// release gives a lane back; one that is broken is closed.
func (pl *pool) release(u *use, good bool) {
	if good && u.send(frameForget) != nil {
		good = false
	}
	pl.mu.Lock()
	defer pl.mu.Unlock()
	w := u.worker
	w.busy--
	if good && !w.dead && len(w.free) < 4 {
		w.free = append(w.free, u.lane)
	} else {
		u.close()
	}
	idle := 0
	for _, other := range pl.workers {
		if other.busy == 0 && !other.dead {
			idle++
		}
	}
	if idle > keepIdle && w.busy == 0 {
		w.retire()
	}
	pl.retireOld()
	pl.started.Broadcast()
}

// start starts a worker, beside. The pool's mu is held.
func (pl *pool) start() {
	pl.starting++
	im := pl.image
	go func() {
		w, err := pl.spawn(im)
		if err != nil && !errors.Is(err, errLate) {
			w, err = pl.repair(im, err)
		}
		pl.mu.Lock()
		defer pl.mu.Unlock()
		pl.starting--
		pl.closeOld()
		pl.started.Broadcast()
		if err != nil {
			pl.failed = err
			return
		}
		pl.workers = append(pl.workers, w)
		go w.reap()
		if pl.closed {
			w.kill()
		}
		pl.retireOld()
	}()
}

// errLate is that of a worker that took too long to start.
var errLate = errors.New("it was not ready in time")

// repair starts a worker after one could not start: the cache may have been
// filled by another program, whose compiled code this one's workers cannot
// use, and workers cannot write there. To compile takes longer than to start.
func (pl *pool) repair(im *image, why error) (*worker, error) {
	ctx, cancel := context.WithTimeout(pl.ctx, 4*pl.startLimit)
	defer cancel()
	if err := prepareOutside(ctx, pl.cfg, pl.p.dir, nil); err != nil {
		return nil, errors.Join(why, err)
	}
	return pl.spawn(im)
}

// spawn starts a worker and waits until it is ready.
func (pl *pool) spawn(im *image) (*worker, error) {
	hello, err := json.Marshal(workerHello{Compiled: filepath.Join(pl.p.dir, compiledDir), Image: *im})
	if err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	code, err := os.Open(filepath.Join(pl.p.dir, codeFile))
	if err != nil {
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	defer code.Close()
	ours, theirs, err := pair()
	if err != nil {
		return nil, err
	}
	far := os.NewFile(uintptr(theirs), "worker")
	defer far.Close()
	w := &worker{pool: pl, image: im, control: os.NewFile(uintptr(ours), "worker"), waited: make(chan struct{})}
	if w.proc, err = startProcess(pl.p.cell, pl.cfg.Worker(verbWork, string(hello)), far, code, pl.p.libraryF, im.file); err != nil {
		w.control.Close()
		return nil, fmt.Errorf("start a worker: %w", err)
	}
	far.Close()
	watchdog := time.AfterFunc(pl.startLimit, w.proc.kill)
	// It says one byte when it is ready, and ends if it cannot be.
	var b [1]byte
	n, err := w.control.Read(b[:])
	if inTime := watchdog.Stop(); n != 1 {
		if !inTime {
			err = fmt.Errorf("%w: it had %v", errLate, pl.startLimit)
		}
		w.proc.kill()
		waitErr := w.proc.wait()
		w.control.Close()
		return nil, fmt.Errorf("start a worker: %w: %s", errors.Join(waitErr, err), w.proc.stderr.String())
	}
	return w, nil
}

// quiet gives a process nothing of this one that it does not need.
func quiet(cmd *exec.Cmd) {
	cmd.Env = []string{"GOTRACEBACK=single"}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
}

// reap waits for the end of a worker.
func (w *worker) reap() {
	_ = w.proc.wait()
	w.pool.mu.Lock()
	defer w.pool.mu.Unlock()
	w.dead = true
	for i, other := range w.pool.workers {
		if other == w {
			w.pool.workers = append(w.pool.workers[:i], w.pool.workers[i+1:]...)
			break
		}
	}
	for _, l := range w.free {
		l.close()
	}
	w.free = nil
	_ = w.control.Close()
	close(w.waited)
	w.pool.started.Broadcast()
}

// retire lets a worker end by itself. The pool's mu is held.
func (w *worker) retire() {
	w.dead = true
	_ = unix.Shutdown(int(w.control.Fd()), unix.SHUT_RDWR)
}

// kill ends a worker and all that it does. The pool's mu is held.
func (w *worker) kill() {
	w.dead = true
	w.proc.kill()
}

// close ends all workers and waits for them.
func (pl *pool) close() {
	pl.mu.Lock()
	pl.closed = true
	pl.cancel()
	workers := append([]*worker(nil), pl.workers...)
	for _, w := range workers {
		w.kill()
	}
	pl.started.Broadcast()
	for pl.starting > 0 {
		pl.started.Wait()
	}
	workers = append(workers, pl.workers...)
	pl.mu.Unlock()
	for _, w := range workers {
		<-w.waited
	}
	pl.beside.Wait()
	if pl.image != pl.p.image {
		pl.old = append(pl.old, pl.image)
	}
	pl.closeOld()
}

// prepareOutside fills a directory in a process of its own, because that takes
// memory that is not needed later.
func prepareOutside(ctx context.Context, cfg Config, dir string, progress func(guest.Progress)) error {
	cmd := cfg.Worker(verbPrepare, dir)
	quiet(cmd)
	said := &tail.Buffer{Max: maxErrorText}
	cmd.Stderr = said
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("prepare in a process: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("prepare in a process: %w", err)
	}
	end := context.AfterFunc(ctx, func() { _ = cmd.Process.Kill() })
	defer end()
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var p guest.Progress
		if progress != nil && json.Unmarshal(lines.Bytes(), &p) == nil {
			progress(p)
		}
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("prepare in a process: %w: %s", errors.Join(ctx.Err(), err), said)
	}
	return nil
}
