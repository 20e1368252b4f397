package peer

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/skiptest"
)

// nobody is a user other than the one that runs the tests.
const nobody = 65534

// role makes this test program a process of another user: "dial", "leave" or
// "serve", a network and an address.
const role = "SPOOL_PEER_TEST"

func TestMain(m *testing.M) {
	if what := os.Getenv(role); what != "" {
		if err := play(strings.Fields(what)); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func play(what []string) error {
	network, addr := what[1], what[2]
	switch what[0] {
	case "dial": // and hold the connection
		c, err := dial(network, addr)
		if err != nil {
			return err
		}
		defer c.Close()
		fmt.Println("connected")
		_, err = io.Copy(io.Discard, os.Stdin)
		return err
	case "leave": // a closed connection, with a request that is still under way
		c, err := dial(network, addr)
		if err != nil {
			return err
		}
		if _, err := io.WriteString(c, "request"); err != nil {
			return err
		}
		err = c.Close()
		fmt.Println("closed")
		return err
	default: // serve one connection
		ln, err := net.Listen(network, addr)
		if err != nil {
			return err
		}
		defer ln.Close()
		fmt.Println(ln.Addr())
		c, err := ln.Accept()
		if err != nil {
			return err
		}
		defer c.Close()
		uid, err := Check(c)
		fmt.Println(uid, err)
		return nil
	}
}

// dial connects. The network "mapped" is IPv4 from a socket of IPv6.
func dial(network, addr string) (net.Conn, error) {
	if network != "mapped" {
		return net.Dial(network, addr)
	}
	to := netip.MustParseAddrPort(addr)
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	if err := unix.Connect(fd, &unix.SockaddrInet6{Port: int(to.Port()), Addr: to.Addr().As16()}); err != nil {
		return nil, err
	}
	return net.FileConn(f)
}

// process is a process of another user.
type process struct {
	cmd   *exec.Cmd
	stdin io.WriteCloser
	lines *bufio.Scanner
}

func asNobody(t *testing.T, what ...string) *process {
	t.Helper()
	if os.Geteuid() != 0 {
		skiptest.Missing(t, "only root can start processes of another user")
	}
	p := &process{cmd: exec.Command("/proc/self/exe")}
	p.cmd.Dir = "/"
	p.cmd.Env = append(os.Environ(), role+"="+strings.Join(what, " "))
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}, Pdeathsig: syscall.SIGKILL}
	p.cmd.Stderr = os.Stderr
	out, err := p.cmd.StdoutPipe()
	if err == nil {
		p.stdin, err = p.cmd.StdinPipe()
	}
	if err == nil {
		err = p.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p.lines = bufio.NewScanner(out)
	t.Cleanup(func() {
		_ = p.stdin.Close()
		_ = p.cmd.Process.Kill()
		_ = p.cmd.Wait()
	})
	return p
}

func (p *process) line(t *testing.T) string {
	t.Helper()
	if !p.lines.Scan() {
		t.Fatalf("the process of the other user printed nothing: %v", p.lines.Err())
	}
	return p.lines.Text()
}

// connections are the ways to connect: the network of the listener, its address
// and the network of the client.
var connections = []struct{ name, network, addr, client string }{
	{"IPv4", "tcp", "127.0.0.1:0", "tcp"},
	{"another loopback address", "tcp", "127.5.6.7:0", "tcp"},
	{"IPv6", "tcp", "[::1]:0", "tcp"},
	{"IPv4 from an IPv6 socket", "tcp", "127.0.0.1:0", "mapped"},
	{"IPv4 to an IPv6 socket", "tcp", "[::]:0", "tcp"},
	{"unix", "unix", "", "unix"},
}

// listenFor listens on an address, on a socket that all users reach if it has
// none.
func listenFor(tb testing.TB, network, addr string) net.Listener {
	tb.Helper()
	if network == "unix" {
		dir, err := os.MkdirTemp("", "peer")
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(func() { os.RemoveAll(dir) })
		if err := os.Chmod(dir, 0o755); err != nil {
			tb.Fatal(err)
		}
		addr = filepath.Join(dir, "socket")
	}
	ln, err := net.Listen(network, addr)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { ln.Close() })
	if network == "unix" {
		if err := os.Chmod(addr, 0o777); err != nil {
			tb.Fatal(err)
		}
	}
	return ln
}

// target is what a client dials.
func target(ln net.Listener) string {
	if tcp, ok := ln.Addr().(*net.TCPAddr); ok && tcp.IP.IsUnspecified() {
		return fmt.Sprintf("127.0.0.1:%d", tcp.Port)
	}
	return ln.Addr().String()
}

// accept connects to a listener and returns its side of the connection.
func accept(tb testing.TB, ln net.Listener, client string) net.Conn {
	tb.Helper()
	out, err := dial(client, target(ln))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { out.Close() })
	in, err := ln.Accept()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { in.Close() })
	return in
}

// TestPeerIsThisUser checks that a connection of this user is accepted.
func TestPeerIsThisUser(t *testing.T) {
	for _, c := range connections {
		t.Run(c.name, func(t *testing.T) {
			ln := listenFor(t, c.network, c.addr)
			in := accept(t, ln, c.client)
			if uid, err := Check(in); err != nil || uid != os.Geteuid() {
				t.Errorf("user %d, %v", uid, err)
			}
		})
	}
}

// TestPeerIsAnotherUser checks that a connection of another user is told apart.
func TestPeerIsAnotherUser(t *testing.T) {
	for _, c := range connections {
		t.Run(c.name, func(t *testing.T) {
			ln := listenFor(t, c.network, c.addr)
			p := asNobody(t, "dial", c.client, target(ln))
			if got := p.line(t); got != "connected" {
				t.Fatal(got)
			}
			in, err := ln.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer in.Close()
			var other *OtherUserError
			if uid, err := Check(in); uid != nobody || !errors.As(err, &other) || other.UID != nobody {
				t.Errorf("user %d, %v", uid, err)
			}
			if tcp, ok := in.(*net.TCPConn); ok {
				checkBothSources(t, tcp, nobody)
			}
		})
	}
}

// checkBothSources asks for the peer of a connection in both ways.
func checkBothSources(t *testing.T, c *net.TCPConn, want uint32) {
	t.Helper()
	local := plain(c.RemoteAddr().(*net.TCPAddr).AddrPort())
	remote := plain(c.LocalAddr().(*net.TCPAddr).AddrPort())
	for name, source := range map[string]func(local, remote netip.AddrPort) (*socket, error){"netlink": askSocket, "/proc": findSocket} {
		if s, err := source(local, remote); err != nil || !s.owned(local, remote) || s.uid != want {
			t.Errorf("%s: %+v, %v", name, s, err)
		}
	}
}

// TestPeerIsRoot checks that the server of another user accepts root.
func TestPeerIsRoot(t *testing.T) {
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		p := asNobody(t, "serve", "tcp", addr)
		c, err := net.Dial("tcp", p.line(t))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if got := p.line(t); got != "0 <nil>" {
			t.Errorf("%s: %s", addr, got)
		}
	}
}

// TestPeerHasLeft checks that a client that closed its connection is unknown:
// the kernel says that a socket without an owner belongs to root.
func TestPeerHasLeft(t *testing.T) {
	ln := listenFor(t, "tcp", "127.0.0.1:0")
	p := asNobody(t, "leave", "tcp", target(ln))
	if got := p.line(t); got != "closed" {
		t.Fatal(got)
	}
	in, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	if uid, err := Check(in); !errors.Is(err, ErrUnknown) {
		t.Errorf("user %d, %v", uid, err)
	}
}

// TestPeerInAnotherNetworkIsUnknown checks that an address which no socket here
// has is unknown, as of a client on another machine.
func TestPeerInAnotherNetworkIsUnknown(t *testing.T) {
	local, remote := netip.MustParseAddrPort("192.0.2.1:1234"), netip.MustParseAddrPort("127.0.0.1:80")
	if s, err := askSocket(local, remote); !errors.Is(err, errNoSocket) {
		t.Errorf("%+v, %v", s, err)
	}
	if s, err := findSocket(local, remote); !errors.Is(err, errNoSocket) {
		t.Errorf("%+v, %v", s, err)
	}
}

// TestProbeTCP checks that the kernel of the tests tells the user of loopback
// connections.
func TestProbeTCP(t *testing.T) {
	for _, ip := range []string{"127.0.0.1", "::1"} {
		if err := ProbeTCP(ip); err != nil {
			t.Errorf("%s: %v", ip, err)
		}
	}
}
