package meter

import (
	"testing"

	"github.com/spool-run/spool"
)

// The end of the output that is kept has at most MaxTail bytes.
func TestTailIsBounded(t *testing.T) {
	var m Meter
	m.Reset(&spool.Limits{OutputBytes: 4 * MaxTail, OutputPolicy: Truncate})
	logged, _ := m.Add(spool.Stdout, make([]byte, 10*MaxTail))
	kept := 0
	m.Flush(func(e spool.Event) { kept += len(e.Bytes) })
	if logged != 3*MaxTail || kept != MaxTail {
		t.Errorf("%d bytes were logged and %d kept", logged, kept)
	}
}
