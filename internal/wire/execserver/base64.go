package execserver

import (
	"encoding/base64"
	"fmt"
	"strings"
)

// decodeBase64 decodes padded standard base64 strictly. Its errors have the
// wording that codex clients know.
func decodeBase64(s string) ([]byte, error) {
	b, err := base64.StdEncoding.Strict().DecodeString(s)
	if err == nil && !strings.ContainsAny(s, "\r\n") { // the decoder skips line breaks
		return b, nil
	}
	return nil, base64Error(s)
}

// base64Error describes the first error in s.
func base64Error(s string) error {
	n := 0
	for n < len(s) && isBase64(s[n]) {
		n++
	}
	padding := s[n:]
	switch {
	case strings.Trim(padding, "=") != "": // another character, or data after the padding
		return fmt.Errorf("Invalid symbol %d, offset %d.", s[n], n) //nolint:staticcheck,revive // the wire's wording
	case n%4 == 1 && padding == "":
		return fmt.Errorf("Invalid input length: %d", n) //nolint:staticcheck,revive // the wire's wording
	case n%4 == 1:
		return fmt.Errorf("Invalid symbol %d, offset %d.", s[n], n) //nolint:staticcheck,revive // the wire's wording
	case len(s)%4 != 0 || len(padding) > 2:
		return fmt.Errorf("Invalid padding") //nolint:staticcheck,revive // the wire's wording
	}
	return fmt.Errorf("Invalid last symbol %d, offset %d.", s[n-1], n-1) //nolint:staticcheck,revive // the wire's wording
}

func isBase64(c byte) bool {
	return 'a' <= c|0x20 && c|0x20 <= 'z' || '0' <= c && c <= '9' || c == '+' || c == '/'
}
