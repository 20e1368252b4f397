//go:build unix && !linux

package fdpass

const (
	sendFlags    = 0
	receiveFlags = 0
)
