//go:build amd64 || arm64

package isolate

import (
	"encoding/json"
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/fdpass"
)

// controlPair returns the two ends of a socket such as that of a sandbox.
func controlPair(t *testing.T) (a, b int) {
	t.Helper()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = unix.Close(pair[0])
		_ = unix.Close(pair[1])
	})
	return pair[0], pair[1]
}

// The description of a sandbox has at most maxMessage bytes. Neither end takes a
// longer one.
func TestDescriptionOfASandboxIsBounded(t *testing.T) {
	a, b := controlPair(t)
	empty, err := json.Marshal(layout{Paths: []string{""}})
	if err != nil {
		t.Fatal(err)
	}
	path := strings.Repeat("p", maxMessage-len(empty))
	if err := send(a, layout{Paths: []string{path}}); err != nil {
		t.Fatalf("a description of %d bytes: %v", maxMessage, err)
	}
	var got layout
	if _, err := receive(b, &got); err != nil || len(got.Paths) != 1 || got.Paths[0] != path {
		t.Errorf("received %d paths: %v", len(got.Paths), err)
	}
	long := layout{Paths: []string{path + "p"}}
	if err := send(a, long); !errors.Is(err, errMessage) {
		t.Errorf("one more byte is sent: %v", err)
	}
	if err := sendFDs(a, &long, []int{a}); !errors.Is(err, errMessage) {
		t.Errorf("one more byte is sent with a descriptor: %v", err)
	}
	if err := unix.Sendmsg(a, make([]byte, maxMessage+1), nil, nil, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := receive(b, &got); !errors.Is(err, errMessage) {
		t.Errorf("one more byte is received: %v", err)
	}
}

// A sandbox gets at most maxTrees mounts, of which at most half are those of the
// machine.
func TestTreesOfASandboxAreBounded(t *testing.T) {
	for _, tt := range []struct {
		mounts, all int
		want        string
	}{
		{maxTrees / 2, maxTrees / 2, ""},
		{maxTrees/2 + 1, maxTrees/2 + 1, "this machine has more than 100 mounts"},
		{maxTrees / 2, maxTrees, ""},
		{maxTrees / 2, maxTrees + 1, "the isolation has more than 100 paths"},
		{20, maxTrees + 1, "the isolation has more than 180 paths"},
	} {
		got := ""
		if err := checkTrees(tt.mounts, tt.all); err != nil {
			got = err.Error()
		}
		if got != tt.want {
			t.Errorf("%d mounts of %d: %q, want %q", tt.mounts, tt.all, got, tt.want)
		}
	}

	a, b := controlPair(t)
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	for n, want := range map[int]error{maxTrees: nil, maxTrees + 1: fdpass.ErrNone} {
		fds := make([]int, n)
		for i := range fds {
			fds[i] = int(null.Fd())
		}
		if err := sendFDs(a, &layout{Trees: n}, fds); err != nil {
			t.Fatal(err)
		}
		var l layout
		trees, err := receive(b, &l)
		for _, fd := range trees {
			_ = unix.Close(fd)
		}
		if !errors.Is(err, want) || len(trees) != maxTrees {
			t.Errorf("%d trees: received %d, %v", n, len(trees), err)
		}
	}
}
