package blockfile

import "runtime"

// maxAhead is how many blocks are decompressed before they are asked for, at most.
const maxAhead = 4

// aheads are the goroutines that decompress blocks ahead.
var aheads = make(chan struct{}, maxWorkers)

// ahead has the n blocks from first on decompressed by another goroutine, while the
// reader works with what it has read. A reader that goes through a log then waits
// little for a compressed one. The goroutine ends with the last of the blocks.
func (r *Reader) ahead(first, n int64) {
	if runtime.GOMAXPROCS(0) == 1 {
		return
	}
	select {
	case aheads <- struct{}{}:
	default:
		return
	}
	type job struct {
		e     *entry
		frame *[]byte
	}
	var jobs []job
	for i := first; i < min(first+min(n, maxAhead), int64(len(r.layout.ends))); i++ {
		k := r.key
		k.block = i
		e, added := recent.claim(k)
		if !added {
			recent.release(e)
			continue
		}
		// The file may be closed when the goroutine runs.
		frame, err := r.readFrame(i)
		if err != nil {
			recent.set(e, nil, err)
			recent.release(e)
			break
		}
		jobs = append(jobs, job{e, frame})
	}
	if len(jobs) == 0 {
		<-aheads
		return
	}
	go func() {
		defer func() { <-aheads }()
		for _, j := range jobs {
			content := newContent(r.layout.contentSize(j.e.key.block))
			recent.set(j.e, content, r.expand(j.e.key.block, *j.frame, content))
			frames.Put(j.frame)
			recent.release(j.e)
		}
	}()
}
