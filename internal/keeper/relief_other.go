//go:build !linux

package keeper

// relief lets nobody who reads do anything else.
type relief struct{}

func newRelief(func()) (*relief, error) { return &relief{}, nil }

func (*relief) begin() bool { return false }
func (*relief) end()        {}
func (*relief) close()      {}
