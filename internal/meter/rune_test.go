package meter_test

import (
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/spool-run/spool/internal/meter"
)

func TestPartialRune(t *testing.T) {
	for text, want := range map[string]int{
		"": 0, "a": 0, "ä": 0, "😀": 0, "a\xc3": 1, "\xf0\x9f\x98": 3, "x\xe2\x82": 2, "\xf0": 1,
		"\xff": 0, "\x80\x80\x80\x80": 0, "\xc3\x28": 0, "😀\xf0\x9f": 2,
	} {
		if got := meter.PartialRune([]byte(text)); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
	rapid.Check(t, func(t *rapid.T) { // wherever a text is cut
		text := rapid.String().Draw(t, "text")
		b := []byte(text)[:rapid.IntRange(0, len(text)).Draw(t, "cut")]
		if n := meter.PartialRune(b); !utf8.Valid(b[:len(b)-n]) {
			t.Errorf("%q without its last %d bytes is not text", b, n)
		}
	})
}
