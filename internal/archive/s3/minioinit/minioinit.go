// Package minioinit keeps the packages of the client for S3 from being initialised at the
// start of every command; see package lateinit.
package minioinit

import "github.com/spool-run/spool/internal/lateinit"

// held are the packages that are not initialised yet.
var held []*lateinit.Package

// Run initialises the packages of the client. Nothing of them may be used before. It is
// called once.
func Run() {
	lateinit.Run(held)
}
