//go:build go1.26 && !go1.27

package serverinit

import (
	_ "unsafe" // for go:linkname

	"github.com/spool-run/spool/internal/lateinit"
)

// The packages that only the NATS server needs and that have something to initialise, in
// the order of their dependencies.
var (
	//go:linkname jwt github.com/nats-io/jwt/v2..inittask
	jwt lateinit.Package
	//go:linkname ldap github.com/nats-io/nats-server/v2/internal/ldap..inittask
	ldap lateinit.Package
	//go:linkname ats github.com/nats-io/nats-server/v2/server/ats..inittask
	ats lateinit.Package
	//go:linkname certidp github.com/nats-io/nats-server/v2/server/certidp..inittask
	certidp lateinit.Package
	//go:linkname certstore github.com/nats-io/nats-server/v2/server/certstore..inittask
	certstore lateinit.Package
	//go:linkname server github.com/nats-io/nats-server/v2/server..inittask
	server lateinit.Package
)

func init() {
	held = lateinit.Hold(&jwt, &ldap, &ats, &certidp, &certstore, &server)
	lateinit.Hold(&sampler)
}

// The sampler is never initialised: it would sample the processor time of this process
// every second, and nothing here asks for the samples.
//
//go:linkname sampler github.com/nats-io/nats-server/v2/server/pse..inittask
var sampler lateinit.Package
