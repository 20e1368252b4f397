//go:build amd64 || arm64

package pyodide

import "testing"

// An ask that is too large for a frame, or for any back end, fails with an errno.
func TestOversizedAskFailsWithE2BIG(t *testing.T) {
	prints(t, open(t, real(t), nil), `
import errno, spool
for size in (3 << 20, 5 << 20, 8 << 20):
    try:
        spool.ask("my.own", data="x" * size)
        print("answered")
    except spool.HostDenied:
        print("denied")
    except OSError as e:
        print(errno.errorcode[e.errno])
`, "denied\nE2BIG\nE2BIG\n")
}
