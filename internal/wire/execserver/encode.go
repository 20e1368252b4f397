package execserver

import (
	"slices"

	"github.com/segmentio/asm/base64"
)

// appendBase64 appends data in base64. It dominates the cost of output, so it
// uses vector instructions where the machine has them.
func appendBase64(b, data []byte) []byte {
	n := base64.StdEncoding.EncodedLen(len(data))
	b = slices.Grow(b, n)
	base64.StdEncoding.Encode(b[len(b):len(b)+n], data)
	return b[:len(b)+n]
}
