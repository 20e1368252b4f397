package servertest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
)

// FreePorts returns the first of n ports of 127.0.0.1 that follow each other and are
// free. They are below those that the kernel gives to processes that ask for any.
func FreePorts(n int) (int, error) {
	const lowest, highest = 12000, 30000
	for range 1000 {
		base := lowest + n*rand.IntN((highest-lowest)/n)
		free := true
		for p := base; p < base+n && free; p++ {
			l, err := net.Listen("tcp", fmt.Sprint("127.0.0.1:", p))
			if free = err == nil; free {
				_ = l.Close() // it was open for a moment only
			}
		}
		if free {
			return base, nil
		}
	}
	return 0, errors.New("no free ports")
}
