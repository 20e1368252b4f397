package wasipy

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
)

// stopGrace is how long a script that has to end may take to say so. Then who
// waits for it is told that it did, and its worker has to be rid of it within
// [workerGrace].
const stopGrace = 2 * time.Millisecond

// remoteRunner executes scripts in a worker.
type remoteRunner struct {
	pool   *pool
	config contextConfig
	fs     vfs.FS
	use    *use        // between scripts that share an interpreter
	files  *vfs.Server // of that

	account engine.Account // what the scripts used
	left    sync.WaitGroup // scripts that have not told it yet
}

func (r *remoteRunner) settle() *spool.ProcessUse {
	r.left.Wait()
	r.account.Add(&spool.ProcessUse{}) // there may have been no script
	return r.account.Used()
}

func (r *remoteRunner) close() { r.drop(true) }

// drop gives the worker back.
func (r *remoteRunner) drop(good bool) {
	if r.use == nil {
		return
	}
	r.pool.release(r.use, good)
	_ = r.files.Close()
	r.use, r.files = nil, nil
}

func (r *remoteRunner) run(ctx context.Context, s guest.Script, d *direct) (guest.Result, error) {
	began := time.Now()
	req := runRequest{Script: s}
	if r.use == nil {
		req.Config = &r.config
	}
	if deadline, ok := ctx.Deadline(); ok {
		req.Left = max(time.Until(deadline), 1)
	}
	b, err := json.Marshal(req)
	if err != nil {
		return guest.Result{}, fmt.Errorf("encode the script: %w", err)
	}
	if len(b) > maxFrame {
		return guest.Result{}, fmt.Errorf("the script is too large: %d bytes", len(b))
	}
	if r.use == nil {
		if r.use, err = r.pool.acquire(ctx); err != nil {
			if ctx.Err() != nil {
				return killed(), nil
			}
			return guest.Result{}, err
		}
		r.files = vfs.NewServer(r.fs, r.config.Files)
	}
	r.use.window.forget()
	if err := r.use.send(frameRun, b); err != nil {
		r.account.Add(nil)
		r.drop(false)
		return crashed(), nil
	}
	c := &conversation{use: r.use, files: r.files, link: d, began: began}
	d.attach(c.interrupt, r.use.worker.waited)
	res, err := c.run(ctx)
	switch {
	case c.broken != nil && ctx.Err() != nil:
		// It did not end in time, or its worker ended: wake the caller.
		c.abandon(r)
		return killed(), nil
	case c.broken != nil:
		r.account.Add(nil)
		r.drop(false)
		return crashed(), nil
	}
	r.account.Add(c.used)
	if r.config.Fresh || res.Lost {
		r.drop(true) // and with it all that was left open
	}
	return res, err
}

func killed() guest.Result {
	return guest.Result{ExitCode: guest.ExitKilled, EndedBy: guest.Killed, Reason: "its caller ended it", Lost: true}
}

func crashed() guest.Result {
	return guest.Result{ExitCode: guest.ExitKilled, EndedBy: guest.Crashed, Reason: "its worker process ended", Lost: true}
}

// conversation is the parent's part in one script.
type conversation struct {
	use     *use
	files   *vfs.Server
	link    *direct
	began   time.Time
	request []byte
	answer  []byte
	broken  error // the lane cannot be used any more
	used    *spool.ProcessUse
}

// interrupt tells the worker of an interrupt.
func (c *conversation) interrupt(n uint32) {
	_ = c.use.send(frameInterrupt, binary.LittleEndian.AppendUint32(nil, n))
}

// run does what the script asks for until it ends.
func (c *conversation) run(ctx context.Context) (guest.Result, error) {
	told := make(chan struct{})
	end := context.AfterFunc(ctx, func() {
		defer close(told)
		_ = c.use.send(frameKill)
		_ = c.use.file.SetReadDeadline(time.Now().Add(stopGrace))
	})
	defer func() {
		if !end() {
			<-told
		}
		_ = c.use.file.SetReadDeadline(time.Time{})
	}()
	for {
		kind, b, err := c.use.recv(hot)
		if err != nil {
			c.broken = err
			return guest.Result{}, nil
		}
		if kind == frameEnd {
			var resp runResponse
			if err := json.Unmarshal(b, &resp); err != nil {
				c.broken = err
				return guest.Result{}, nil
			}
			c.used = resp.use(time.Since(c.began))
			return resp.unpack()
		}
		if err := c.serve(kind, b); err != nil {
			c.broken = err
			return guest.Result{}, nil
		}
	}
}

var errFrame = errors.New("the worker sent a malformed frame")

// serve does one thing for the script. The worker is not trusted to ask for
// anything sensible.
func (c *conversation) serve(kind byte, b []byte) error {
	switch kind {
	case frameStarted:
		var s guest.Startup
		if err := json.Unmarshal(b, &s); err != nil {
			return errFrame
		}
		s.Duration = time.Since(c.began)
		c.link.Started(s)
	case frameWrite:
		if len(b) == 0 || b[0] != byte(guest.Stdout) && b[0] != byte(guest.Stderr) {
			return errFrame
		}
		c.link.Write(guest.Stream(b[0]), b[1:])
	case frameFile:
		if err := c.file(b); err != nil {
			return err
		}
		return c.reply(c.answer)
	case frameBell:
		w := c.use.window
		if !w.pending() { // the call was there before the bell
			return nil
		}
		c.request = w.take(c.request[:0])
		if err := c.file(c.request); err != nil {
			return err
		}
		given, ring := w.give(c.answer)
		switch {
		case !given:
			return c.reply(c.answer)
		case ring:
			return c.use.send(frameBell)
		}
	case frameRead:
		if len(b) != 4 {
			return errFrame
		}
		p := make([]byte, min(binary.LittleEndian.Uint32(b), vfs.MaxIO))
		n, err := c.link.Read(p)
		return c.waited(p[:n], err)
	case frameAsk:
		if len(b) < 2 || len(b)-2 < int(binary.LittleEndian.Uint16(b)) {
			return errFrame
		}
		n := 2 + int(binary.LittleEndian.Uint16(b))
		if len(b)-n > guest.MaxAskBytes {
			return c.waited(tooLarge, nil)
		}
		// The ask may take long, and b is only good until the next frame.
		reply, err := c.link.Ask(string(b[2:n]), append([]byte(nil), b[n:]...))
		if len(reply) > guest.MaxAnswerBytes {
			reply = tooLarge
		}
		return c.waited(reply, err)
	case frameHeard:
		if len(b) != 4 {
			return errFrame
		}
		c.link.heard(binary.LittleEndian.Uint32(b))
	default:
		return errFrame
	}
	return nil
}

// file answers a file call.
func (c *conversation) file(request []byte) (err error) {
	c.answer, err = c.files.Call(c.answer[:0], request)
	return err
}

func (c *conversation) waited(b []byte, err error) error {
	switch {
	case err == nil:
		return c.reply([]byte{statusOK}, b)
	case errors.Is(err, io.EOF):
		return c.reply([]byte{statusEOF})
	case errors.Is(err, errInterrupt):
		return c.reply(binary.LittleEndian.AppendUint32([]byte{statusInterrupted}, c.link.number()))
	case errors.Is(err, errStop):
		return c.reply([]byte{statusStop})
	}
	return c.reply([]byte{statusFailed})
}

func (c *conversation) reply(parts ...[]byte) error {
	if cap(c.answer) > keptBuffer {
		c.answer = nil
	}
	return c.use.send(frameAnswer, parts...)
}

// abandon leaves a script that does not end to itself, and its worker to who
// looks after it from now on.
func (c *conversation) abandon(r *remoteRunner) {
	u, files, pl := r.use, r.files, r.pool
	r.use, r.files = nil, nil
	if !errors.Is(c.broken, os.ErrDeadlineExceeded) {
		r.account.Add(nil)
		pl.release(u, false)
		_ = files.Close()
		return
	}
	pl.mu.Lock()
	u.worker.stuck++
	pl.mu.Unlock()
	r.left.Add(1)
	pl.beside.Go(func() {
		var used *spool.ProcessUse
		defer func() {
			r.account.Add(used)
			r.left.Done()
		}()
		_ = files.Close()
		_ = u.file.SetReadDeadline(time.Now().Add(pl.workerGrace))
		good := false
		for {
			kind, b, err := u.recv(patient)
			if err != nil {
				break
			}
			switch kind {
			case frameEnd:
				var resp runResponse
				if good = json.Unmarshal(b, &resp) == nil; good {
					used = resp.use(time.Since(c.began))
				}
			case frameFile, frameRead, frameAsk, frameBell:
				if kind == frameBell {
					if !u.window.pending() {
						continue
					}
					u.window.forget()
				}
				// It has been told to stop and finds out with the answer.
				if u.send(frameAnswer, []byte{statusStop}) == nil {
					continue
				}
			default:
				continue
			}
			break
		}
		_ = u.file.SetReadDeadline(time.Time{})
		pl.mu.Lock()
		u.worker.stuck--
		if !good {
			u.worker.kill()
		}
		pl.mu.Unlock()
		pl.release(u, good)
	})
}
