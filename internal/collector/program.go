package collector

import "time"

// atWork is how often a process that works gives back the pages of the program that it
// has needed, if there are more than workPages: what the work needs it takes again. It
// works if it uses someWork of a processor in that time: a process that does next to
// nothing has few collections, and would have used that between two of them as well.
const (
	atWork    = 500 * time.Millisecond
	someWork  = 100 * time.Millisecond
	workPages = 8 << 20
)

// followProgram has a process that works give back pages of the program, of which its
// start and work that is over have left many.
func followProgram() {
	var last time.Time
	var before time.Duration
	afterCollections(func() {
		now, cpu := time.Now(), used()
		passed := now.Sub(last)
		if passed < atWork {
			return
		}
		if works(cpu-before, passed) && resident().program > workPages {
			dropProgram()
		}
		last, before = now, cpu
	})
}

// works reports whether a process works that used so much of the processors in some time.
func works(used, passed time.Duration) bool { return used >= passed/(atWork/someWork) }
