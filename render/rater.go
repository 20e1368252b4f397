package render

import (
	"container/heap"
	"strings"

	"github.com/spool-run/spool"
)

// The scores of lines: what is left out of an excerpt last has the highest.
const (
	scorePlain   = iota
	scoreNew     // unlike the lines before it, or of stderr
	scoreWarning // says that it warns
	scoreError   // says that something failed, or belongs to a traceback
)

// Words that tell of failures and of warnings, in lower case.
var (
	errorWords = []string{
		"error", "exception", "traceback", "panic", "fatal", "fail", "segmentation fault", "core dumped", "assert", "killed", "abort",
		"cannot", "denied", "refused", "undefined", "not found", "no such file", "unable to",
	}
	warningWords = []string{"warn", "deprecat", "timed out", "timeout", "retry"}
)

// maxTrace is how many indented lines after an error belong to it.
const maxTrace = 40

// maxShapes is how many shapes of lines are remembered.
const maxShapes = 4096

// rater says how much lines matter. The zero value is ready to use.
type rater struct {
	failure bool // the lines are those of an exception
	trace   map[spool.Stream]int
	shapes  map[string]bool
}

// rate returns the score of the next line of a stream.
func (r *rater) rate(stream spool.Stream, text string) int {
	if r.trace == nil {
		r.trace, r.shapes = make(map[spool.Stream]int), make(map[string]bool)
	}
	lower := strings.ToLower(text)
	isNew := r.isNew(lower)
	has := func(words []string) bool {
		for _, w := range words {
			if strings.Contains(lower, w) {
				return true
			}
		}
		return false
	}
	switch {
	case r.failure:
		return scoreError
	case has(errorWords):
		r.trace[stream] = maxTrace
		return scoreError
	case r.trace[stream] > 0 && (strings.HasPrefix(text, " ") || strings.HasPrefix(text, "\t")):
		r.trace[stream]--
		return scoreError
	}
	r.trace[stream] = 0
	switch {
	case has(warningWords):
		return scoreWarning
	case isNew, stream == spool.Stderr:
		return scoreNew
	}
	return scorePlain
}

// isNew reports whether a line differs from those before in more than its numbers.
func (r *rater) isNew(text string) bool {
	shape := strings.Map(func(c rune) rune {
		if c >= '0' && c <= '9' {
			return -1
		}
		return c
	}, text)
	if len(shape) > 64 {
		shape = shape[:64]
	}
	if r.shapes[shape] {
		return false
	}
	if len(r.shapes) >= maxShapes {
		clear(r.shapes)
	}
	r.shapes[shape] = true
	return true
}

// worst is a heap of lines: what matters least is first. Of errors the first ones
// matter most, of other lines the last ones.
type worst []*excerptLine

func (w *worst) push(l *excerptLine) { heap.Push((*heapLines)(w), l) }
func (w *worst) pop() *excerptLine   { return heap.Pop((*heapLines)(w)).(*excerptLine) }

// heapLines implements [heap.Interface].
type heapLines []*excerptLine

func (h heapLines) Len() int      { return len(h) }
func (h heapLines) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *heapLines) Push(l any)   { *h = append(*h, l.(*excerptLine)) }
func (h *heapLines) Pop() any {
	n := len(*h) - 1
	l := (*h)[n]
	(*h)[n] = nil
	*h = (*h)[:n]
	return l
}

func (h heapLines) Less(i, j int) bool {
	a, b := h[i], h[j]
	switch {
	case a.score != b.score:
		return a.score < b.score
	case a.score == scoreError:
		return a.place > b.place
	}
	return a.place < b.place
}
