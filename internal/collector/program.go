package collector

import "time"

// atWork is how often a process that works gives back the pages of the program that it
// has needed, if there are more than workPages: what the work needs it takes again. It has
// worked if it used someWork of the processors.
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
		if now.Sub(last) >= atWork && cpu-before >= someWork && resident().program > workPages {
			dropProgram()
			last, before = now, cpu
		}
	})
}
