package keeper_test

import (
	"context"
	"net"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/failpoint"
	"github.com/spool-run/spool/internal/host"
	"github.com/spool-run/spool/internal/keeper"
)

// serveHere runs a keeper in this process until the test ends.
func serveHere(t *testing.T, dir, build string) {
	t.Helper()
	serveIdle(t, dir, build, 0)
}

// serveIdle is serveHere with the time after which the keeper ends when it is idle.
func serveIdle(t *testing.T, dir, build string, idle time.Duration) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- keeper.Serve(ctx, keeper.ServeOptions{Host: hostOptions(dir), Build: build, Idle: idle, Ready: func() { close(ready) }})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	<-ready
}

// A keeper that is idle from its start on waits for the process that started it,
// which may be slow to connect.
func TestKeeperWaitsForItsFirstConnection(t *testing.T) {
	dir := stateDir(t)
	serveIdle(t, dir, "one", time.Nanosecond)
	owners, err := host.Owners(dir)
	if err != nil || len(owners) != 1 {
		t.Fatal(owners, err)
	}
	r, err := spool.Start(t.Context(), open(t, dir, "one"), spool.Spec{Argv: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	if info, err := r.Info(t.Context()); err != nil || info.Owner != owners[0].ID {
		t.Errorf("the run is of keeper %s, want %s: %v", info.Owner, owners[0].ID, err)
	}
}

// A start that hangs, for example on a network file system, delays neither the
// stop of another run nor further starts.
func TestSlowStartDelaysNothing(t *testing.T) {
	dir := t.TempDir()
	serveHere(t, dir, "one")
	b := open(t, dir, "one")
	other, err := spool.Start(t.Context(), b, spool.Spec{Argv: []string{"sleep", "1000"}})
	if err != nil {
		t.Fatal(err)
	}
	var starts []chan error
	release := make(chan struct{})
	defer failpoint.Enable("launch.fork", 0, failpoint.Stall(release))()
	for range 3 {
		started := make(chan error, 1)
		starts = append(starts, started)
		go func() {
			r, err := spool.Start(t.Context(), b, spool.Spec{Argv: []string{"true"}})
			if err == nil {
				_, err = r.Wait(t.Context())
			}
			started <- err
		}()
	}
	if err := other.Kill(t.Context()); err != nil {
		t.Error(err)
	}
	if o, err := other.Wait(t.Context()); err != nil || o.Signal != "SIGKILL" {
		t.Errorf("the other run: %+v, %v", o, err)
	}
	close(release)
	for _, started := range starts {
		if err := <-started; err != nil {
			t.Error(err)
		}
	}
}

// A server of another build uses the socket instead of pipes.
func TestOtherBuildUsesSocket(t *testing.T) {
	dir := t.TempDir()
	serveHere(t, dir, "old")
	run, err := spool.Start(t.Context(), open(t, dir, "old"), spool.Spec{Argv: []string{"sh", "-c", "echo hi; read line; exit 3"}, Stdin: true})
	if err != nil {
		t.Fatal(err)
	}
	found := spool.Attach(open(t, dir, "new"), run.ID())
	if _, err := found.Send(t.Context(), spool.Input{Kind: spool.InputStdin, Bytes: []byte("\n")}); err != nil {
		t.Fatal(err)
	}
	if o, err := found.Wait(t.Context()); err != nil || o.Code != 3 {
		t.Errorf("%+v, %v", o, err)
	}
}

// Connections that do not speak the protocol do no harm.
func TestForeignConnections(t *testing.T) {
	dir := t.TempDir()
	serveHere(t, dir, "one")
	owners, err := host.Owners(dir)
	if err != nil || len(owners) != 1 {
		t.Fatal(owners, err)
	}
	_, path, _ := strings.Cut(owners[0].Address, ":")
	for _, hello := range []struct {
		text        string
		descriptors []int
	}{
		{"", nil}, {"\x00", nil}, {"\xff\xff\xff\xff", nil}, {"GET / HTTP/1.1\r\n\r\n", nil},
		{"\x00", []int{0}}, {"\x00", []int{0, 0, 0}}, {"\x00", []int{0, 0}},
	} {
		c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path})
		if err != nil {
			t.Fatal(err)
		}
		var oob []byte
		if hello.descriptors != nil {
			oob = unix.UnixRights(hello.descriptors...)
		}
		if _, _, err := c.WriteMsgUnix([]byte(hello.text), oob, nil); err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	r, err := spool.Start(t.Context(), open(t, dir, "one"), spool.Spec{Argv: []string{"true"}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Wait(t.Context()); err != nil {
		t.Error(err)
	}
}
