//go:build !linux

package collector

// dropProgram does nothing: only Linux tells which pages may be dropped.
func dropProgram() {}

func resident() memory { return memory{} }
