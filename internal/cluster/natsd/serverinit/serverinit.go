// Package serverinit keeps the packages of the NATS server from being initialised at the
// start of every command; see package lateinit.
package serverinit

import "github.com/spool-run/spool/internal/lateinit"

// held are the packages that are not initialised yet.
var held []*lateinit.Package

// Run initialises the packages of the NATS server. Nothing of them may be used before. It
// is called once.
func Run() {
	lateinit.Run(held)
}
