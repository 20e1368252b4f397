package wasipy

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/flock"
)

// imageAge is how old an image gets before another takes its place. All
// interpreters of an image hash alike, because what is in it was hashed before:
// who knows the seed of one knows that of the others, for so long.
const imageAge = 15 * time.Minute

// renewal is what a process that makes a new image is told.
type renewal struct {
	Dir  string    `json:"dir"`
	Made time.Time `json:"made"` // of the image that is too old
}

// renewHere makes a new image, unless another process just did. No script waits for
// it, so that it leaves the processor to others.
func renewHere(arg string) error {
	var r renewal
	if err := json.Unmarshal([]byte(arg), &r); err != nil {
		return fmt.Errorf("decode the argument: %w", err)
	}
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, 19)
	ctx := context.Background()
	lock, err := flock.Open(ctx, filepath.Join(r.Dir, lockName))
	if err != nil {
		return fmt.Errorf("lock the cache: %w", err)
	}
	defer lock.Close()
	if made, err := imageMade(r.Dir); err == nil && made.After(r.Made) && validStamp(r.Dir) {
		return nil
	}
	m, err := openMachine(ctx, r.Dir)
	if err != nil {
		return err
	}
	defer m.close()
	if err := makeImage(ctx, m, r.Dir); err != nil {
		return err
	}
	return writeStamp(r.Dir)
}

// imageMade is when the image of a directory was made.
func imageMade(dir string) (time.Time, error) {
	info, err := os.Stat(filepath.Join(dir, imageName))
	if err != nil {
		return time.Time{}, err
	}
	return info.ModTime(), nil
}

// renew has a new image made if the one in use is too old. Scripts go on with
// the old one meanwhile. The pool's mu is held.
func (pl *pool) renew() {
	if pl.renewing || pl.closed || time.Since(pl.made) < pl.imageAge {
		return
	}
	pl.renewing = true
	made := pl.made
	pl.beside.Go(func() {
		im, err := pl.newImage(made)
		pl.mu.Lock()
		defer pl.mu.Unlock()
		pl.renewing = false
		pl.made = time.Now() // and not again soon, if it did not go well
		if err == nil {
			pl.change(im)
		}
	})
}

func (pl *pool) newImage(old time.Time) (*image, error) {
	arg, err := json.Marshal(renewal{pl.p.dir, old})
	if err != nil {
		return nil, fmt.Errorf("renew the image: %w", err)
	}
	cmd := pl.cfg.Worker(verbRenew, string(arg))
	quiet(cmd)
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("renew the image: %w", err)
	}
	end := context.AfterFunc(pl.ctx, func() { _ = cmd.Process.Kill() })
	defer end()
	if err := cmd.Wait(); err != nil {
		return nil, fmt.Errorf("renew the image: %w", errors.Join(pl.ctx.Err(), err))
	}
	return loadImage(pl.p.dir)
}

// change lets new workers have another image, and starts one. Those that have
// the old one end when they have nothing to do and it is there. The pool's mu
// is held.
func (pl *pool) change(im *image) {
	if pl.image != pl.p.image { // which is closed by who made the pool
		pl.old = append(pl.old, pl.image)
	}
	pl.image = im
	pl.closeOld()
	if !pl.closed {
		pl.start()
	}
}

// retireOld ends workers with an old image that have nothing to do, if there
// is one with the new. The pool's mu is held.
func (pl *pool) retireOld() {
	isNew := func(w *worker) bool { return w.image == pl.image }
	if best, _ := pl.idlestOf(isNew); best == nil {
		return
	}
	for _, w := range pl.workers {
		if w.busy == 0 && !w.dead && !isNew(w) {
			w.retire()
		}
	}
}

// closeOld closes images that no worker will be started with. The pool's mu is
// held.
func (pl *pool) closeOld() {
	if pl.starting > 0 {
		return
	}
	for _, im := range pl.old {
		_ = im.Close()
	}
	pl.old = nil
}
