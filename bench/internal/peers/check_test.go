package peers

import (
	"strings"
	"testing"
)

func TestCheck(t *testing.T) {
	for name, test := range map[string]struct {
		parts string // separated by |
		want  Loss
	}{
		"everything":               {"10000001\n10000002\n10000003\n10000004\n", Loss{}},
		"in parts":                 {"1|0000001\n1000000|2|\n|10000003\n10000004\n", Loss{}},
		"of a terminal":            {"10000001\r\n10000002\r|\n10000003\r\n10000004\r\n", Loss{}},
		"nothing":                  {"", Loss{Lost: 4}},
		"without the end":          {"10000001\n10000002\n", Loss{Lost: 2}},
		"without the middle":       {"10000001\n10000004\n", Loss{Lost: 2}},
		"again from the beginning": {"10000001\n10000002\n|10000001\n10000002\n10000003\n10000004\n", Loss{Repeated: 2}},
		"out of order":             {"10000002\n10000001\n10000004\n10000003\n", Loss{}},
		"two lines as one":         {"10000001\n1000|10000003\n10000004\n", Loss{Lost: 2, Torn: 1}},
		"half a line at the end":   {"10000001\n10000002\n10000003\n1000", Loss{Lost: 1, Torn: 1}},
		"other text":               {"10000001\n10000002\nwhat?\n10000003\n10000004\n\n", Loss{Torn: 2}},
		"numbers that are too big": {"10000001\n10000002\n10000003\n10000004\n10000005\n99999999999999999999\n", Loss{Torn: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			c := NewCheck(4)
			for part := range strings.SplitSeq(test.parts, "|") {
				c.Write([]byte(part))
			}
			test.want.Lines = 4
			if got := c.Loss(); got != test.want {
				t.Errorf("found %+v, want %+v", got, test.want)
			}
		})
	}
}
