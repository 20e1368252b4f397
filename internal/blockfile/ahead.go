package blockfile

import (
	"runtime"
	"sync"
)

const (
	// maxAhead is how many blocks are decompressed before they are asked for, at
	// most. Waking another processor takes as long as decompressing a block, so that
	// it is woken seldom.
	maxAhead = 8
	// maxJobs is how many files are read ahead at a time.
	maxJobs = 4
)

// jobs are the files that are read ahead.
var jobs struct {
	mu    sync.Mutex
	files map[key]*job
}

// job is what one goroutine decompresses ahead of the reader of a file: the blocks from
// next to end. The reader decompresses what it wants sooner, and then the goroutine
// passes over it. The mu of jobs guards its fields.
type job struct {
	r         *Reader
	next, end int64
	frames    map[int64]*[]byte // the blocks as they are in the file, which may be closed
	reading   bool              // the reader is reading more of them
	running   bool              // the goroutine is
}

// near reports whether a reader of this block is the one for which the job works.
func (j *job) near(block int64) bool { return block <= j.end && block+maxAhead >= j.next }

// ahead has the blocks from first on decompressed by another goroutine, while the reader
// works with what it has read. A reader that goes through a log then waits little for a
// compressed one.
func (r *Reader) ahead(first int64) {
	if runtime.GOMAXPROCS(0) == 1 {
		return
	}
	jobs.mu.Lock()
	j := jobs.files[r.key]
	if j == nil && len(jobs.files) < maxJobs {
		j = &job{r: r, next: first, end: first, frames: make(map[int64]*[]byte)}
		if jobs.files == nil {
			jobs.files = make(map[key]*job)
		}
		jobs.files[r.key] = j
	}
	if j == nil || j.reading || !j.near(first) {
		jobs.mu.Unlock()
		return
	}
	j.pass(first)
	from, to := j.end, min(first+maxAhead, int64(len(r.layout.ends)))
	if to-from < maxAhead/2 && j.running {
		jobs.mu.Unlock()
		return
	}
	j.reading = true
	jobs.mu.Unlock()

	frames := make(map[int64]*[]byte, maxAhead)
	for i := from; i < to; i++ {
		frame, err := r.readFrame(i)
		if err != nil { // which the reader will tell
			break
		}
		frames[i] = frame
	}

	jobs.mu.Lock()
	defer jobs.mu.Unlock()
	j.reading = false
	for i, frame := range frames {
		j.frames[i] = frame
		j.end = max(j.end, i+1)
	}
	switch {
	case j.running:
	case len(j.frames) > 0:
		j.running = true
		go j.work()
	default:
		delete(jobs.files, r.key)
	}
}

// pass passes over the blocks before one.
func (j *job) pass(before int64) {
	for ; j.next < before; j.next++ {
		if frame := j.frames[j.next]; frame != nil {
			delete(j.frames, j.next)
			frames.Put(frame)
		}
	}
	j.end = max(j.end, j.next)
}

// work decompresses blocks until there are no more.
func (j *job) work() {
	for {
		jobs.mu.Lock()
		if j.next == j.end {
			j.running = false
			if !j.reading { // otherwise the reader goes on with the job
				delete(jobs.files, j.r.key)
			}
			jobs.mu.Unlock()
			return
		}
		j.step()
	}
}

// help has the reader decompress a block of the job of its file, in place of waiting for
// the goroutine. It reports false if there is none.
func (r *Reader) help() bool {
	jobs.mu.Lock()
	j := jobs.files[r.key]
	if j == nil || j.next == j.end {
		jobs.mu.Unlock()
		return false
	}
	j.step()
	return true
}

// step decompresses the next block. The caller holds the mu of jobs, which step releases.
func (j *job) step() {
	block := j.next
	frame := j.frames[block]
	delete(j.frames, block)
	j.next++
	k := j.r.key
	k.block = block
	e, added := recent.claim(k)
	jobs.mu.Unlock()
	if added {
		content := newContent(j.r.layout.contentSize(block))
		recent.set(e, content, j.r.expand(block, *frame, content))
	}
	recent.release(e)
	frames.Put(frame)
}

// isAhead reports whether a goroutine decompresses blocks for a reader of this one.
func (r *Reader) isAhead(block int64) bool {
	jobs.mu.Lock()
	defer jobs.mu.Unlock()
	j := jobs.files[r.key]
	return j != nil && j.near(block)
}

// own tells the goroutine that the reader decompresses a block itself. It returns the
// block instead if the goroutine, or another reader, has begun with it.
func (r *Reader) own(k key) *entry {
	jobs.mu.Lock()
	defer jobs.mu.Unlock()
	if e := recent.get(k); e != nil {
		return e
	}
	if j := jobs.files[r.key]; j != nil && j.near(k.block) {
		j.pass(k.block + 1)
	}
	return nil
}
