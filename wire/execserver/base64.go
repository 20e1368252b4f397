package execserver

import (
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
)

// decodeBase64 decodes padded standard base64 and nothing more lenient; the
// error has the wording that the dialect's clients know.
func decodeBase64(s string) ([]byte, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err == nil && !strings.ContainsAny(s, "\r\n") { // which the decoder skips
		return b, nil
	}
	for i, c := range []byte(strings.TrimRight(s, "=")) {
		letter := 'a' <= c|0x20 && c|0x20 <= 'z'
		if !letter && (c < '0' || c > '9') && c != '+' && c != '/' {
			return nil, fmt.Errorf("Invalid symbol %d, offset %d.", c, i) //nolint:staticcheck,revive // the wire's wording
		}
	}
	return nil, errors.New("Invalid padding") //nolint:staticcheck,revive // the wire's wording
}
