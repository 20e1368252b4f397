package servertest

import (
	"fmt"
	"math/rand/v2"
)

// OwnAddress returns an address to listen on for a server that is to be started
// again on the same port. It is a loopback address that no other test uses: on
// 127.0.0.1 any connection of another test could take the port meanwhile.
func OwnAddress() string {
	return fmt.Sprintf("ws://127.%d.%d.%d:0", 1+rand.IntN(254), rand.IntN(256), 1+rand.IntN(254))
}
