//go:build !linux

package keeper

// stallTimer is not available on this platform: begin always reports false.
type stallTimer struct{}

func newStallTimer(func()) (*stallTimer, error) { return &stallTimer{}, nil }

func (*stallTimer) begin() bool { return false }
func (*stallTimer) end()        {}
func (*stallTimer) close()      {}
