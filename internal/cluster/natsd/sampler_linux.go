//go:build linux && !race

package natsd

import (
	_ "unsafe" // for go:linkname

	_ "github.com/nats-io/nats-server/v2/server/pse"
)

// procStatFile is the file from which NATS samples the processor time of this process,
// every second, from the moment its package is initialised: in every process of this
// program, servers or not, of a cluster or not. Nothing here asks for the samples. Once
// the file cannot be read, NATS samples no more.
//
// The detector of races would see this write beside the first sample a second later.
//
//go:linkname procStatFile github.com/nats-io/nats-server/v2/server/pse.procStatFile
var procStatFile string

func init() { procStatFile = "" }
