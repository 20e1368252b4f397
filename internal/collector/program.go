package collector

import "time"

// atWork is how often a process that works gives back the pages of the program that it
// has needed, if there are more than workPages: what the work needs it takes again.
const (
	atWork    = 500 * time.Millisecond
	workPages = 8 << 20
)

// followProgram has a process that works give back pages of the program, of which its
// start and work that is over have left many.
func followProgram() {
	var last time.Time
	afterCollections(func() {
		if now := time.Now(); now.Sub(last) >= atWork && resident().program > workPages {
			dropProgram()
			last = now
		}
	})
}
