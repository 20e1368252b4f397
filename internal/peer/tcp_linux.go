package peer

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// socket is what the kernel tells about a TCP socket.
type socket struct {
	local, remote netip.AddrPort
	state         uint8
	uid           uint32
	inode         uint64
}

// stateEstablished is TCP_ESTABLISHED of the kernel.
const stateEstablished = 1

var errNoSocket = errors.New("no such socket")

// diagWorks is set once the kernel has found a socket by NETLINK_SOCK_DIAG. A
// kernel without that interface answers as if there were no such socket; its
// tables of all sockets then help, which take long to read.
var diagWorks atomic.Bool

// tcpUID looks for the socket at the other end: the one with the addresses of c
// the other way round. The kernel has one such socket at most.
func tcpUID(c *net.TCPConn) (int, error) {
	here, ok1 := c.LocalAddr().(*net.TCPAddr)
	there, ok2 := c.RemoteAddr().(*net.TCPAddr)
	if !ok1 || !ok2 {
		return 0, fmt.Errorf("%w: it has no address", ErrUnknown)
	}
	local, remote := plain(there.AddrPort()), plain(here.AddrPort())
	s, err := askSocket(local, remote)
	if err != nil && !diagWorks.Load() {
		var listErr error
		if s, listErr = findSocket(local, remote); listErr == nil {
			err = nil
		} else {
			err = errors.Join(err, listErr)
		}
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	if !s.owned(local, remote) {
		return 0, fmt.Errorf("%w: it has closed the connection", ErrUnknown)
	}
	return int(s.uid), nil
}

// owned reports whether s is the socket between these addresses, and a process
// holds it. A socket that its process has closed while data was under way stays
// for a while without an owner, and the kernel then calls its user 0: it must
// not pass for root's.
func (s *socket) owned(local, remote netip.AddrPort) bool {
	return s.local == local && s.remote == remote && s.state == stateEstablished && s.inode != 0
}

// plain returns an address without the forms of IPv6 that mean IPv4.
func plain(a netip.AddrPort) netip.AddrPort {
	return netip.AddrPortFrom(a.Addr().Unmap().WithZone(""), a.Port())
}

// The layout of the messages of NETLINK_SOCK_DIAG: struct inet_diag_req_v2 and
// struct inet_diag_msg of linux/inet_diag.h.
const (
	sockDiagByFamily = 20
	diagRequestLen   = 56
	diagAnswerLen    = 72
	diagIDLen        = 48 // of struct inet_diag_sockid
)

// askSocket asks the kernel for the socket with these addresses.
func askSocket(local, remote netip.AddrPort) (*socket, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_SOCK_DIAG)
	if err != nil {
		return nil, os.NewSyscallError("socket", err)
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Sec: 1}); err != nil {
		return nil, os.NewSyscallError("setsockopt", err)
	}
	if err := unix.Sendto(fd, diagRequest(local, remote), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return nil, os.NewSyscallError("sendto", err)
	}
	buf := make([]byte, 4096)
	for {
		n, from, err := unix.Recvfrom(fd, buf, 0)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if err != nil {
			return nil, os.NewSyscallError("recvfrom", err)
		}
		if nl, ok := from.(*unix.SockaddrNetlink); !ok || nl.Pid != 0 {
			continue // not from the kernel
		}
		return diagAnswer(buf[:n])
	}
}

func diagRequest(local, remote netip.AddrPort) []byte {
	b := make([]byte, unix.SizeofNlMsghdr+diagRequestLen)
	ne := binary.NativeEndian
	ne.PutUint32(b[0:], uint32(len(b)))
	ne.PutUint16(b[4:], sockDiagByFamily)
	ne.PutUint16(b[6:], unix.NLM_F_REQUEST)
	r := b[unix.SizeofNlMsghdr:]
	r[0], r[1] = unix.AF_INET6, unix.IPPROTO_TCP
	if local.Addr().Is4() {
		r[0] = unix.AF_INET
	}
	ne.PutUint32(r[4:], 1<<stateEstablished)
	id := r[8:]
	binary.BigEndian.PutUint16(id[0:], local.Port())
	binary.BigEndian.PutUint16(id[2:], remote.Port())
	copy(id[4:20], local.Addr().AsSlice())
	copy(id[20:36], remote.Addr().AsSlice())
	for i := 40; i < diagIDLen; i++ {
		id[i] = 0xff // no cookie
	}
	return b
}

func diagAnswer(b []byte) (*socket, error) {
	ne := binary.NativeEndian
	if len(b) < unix.SizeofNlMsghdr+4 {
		return nil, errors.New("short answer of the kernel")
	}
	m := b[unix.SizeofNlMsghdr:]
	switch typ := ne.Uint16(b[4:]); {
	case typ == unix.NLMSG_ERROR:
		if errno := -int32(ne.Uint32(m)); errno != int32(unix.ENOENT) {
			return nil, unix.Errno(errno)
		}
		return nil, errNoSocket
	case typ != sockDiagByFamily || len(m) < diagAnswerLen:
		return nil, fmt.Errorf("answer of the kernel of type %d and %d bytes", typ, len(m))
	}
	size := net.IPv4len
	if m[0] == unix.AF_INET6 {
		size = net.IPv6len
	}
	id, rest := m[4:4+diagIDLen], m[4+diagIDLen:]
	src, _ := netip.AddrFromSlice(id[4 : 4+size])
	dst, _ := netip.AddrFromSlice(id[20 : 20+size])
	diagWorks.Store(true)
	return &socket{
		local:  plain(netip.AddrPortFrom(src, binary.BigEndian.Uint16(id[0:]))),
		remote: plain(netip.AddrPortFrom(dst, binary.BigEndian.Uint16(id[2:]))),
		state:  m[1], uid: ne.Uint32(rest[12:]), inode: uint64(ne.Uint32(rest[16:])),
	}, nil
}

// findSocket looks for the socket in the tables of the kernel.
func findSocket(local, remote netip.AddrPort) (*socket, error) {
	for _, name := range []string{"/proc/self/net/tcp", "/proc/self/net/tcp6"} { // an IPv6 socket may use IPv4
		s, err := findSocketIn(name, local, remote)
		if !errors.Is(err, errNoSocket) && !errors.Is(err, os.ErrNotExist) {
			return s, err
		}
	}
	return nil, errNoSocket
}

func findSocketIn(name string, local, remote netip.AddrPort) (*socket, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		// sl, local, remote, state, queues, timer, retransmits, uid, timeout, inode
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 || parseTableAddr(fields[1]) != local || parseTableAddr(fields[2]) != remote {
			continue
		}
		state, err1 := strconv.ParseUint(fields[3], 16, 8)
		uid, err2 := strconv.ParseUint(fields[7], 10, 32)
		inode, err3 := strconv.ParseUint(fields[9], 10, 64)
		if err := errors.Join(err1, err2, err3); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		return &socket{local, remote, uint8(state), uint32(uid), inode}, nil
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return nil, errNoSocket
}

// parseTableAddr reads an address of /proc/net/tcp: words of 32 bits in the
// order of the machine, a colon, and the port, all in hexadecimal. It returns
// the zero address if s is not one.
func parseTableAddr(s string) netip.AddrPort {
	words, port, _ := strings.Cut(s, ":")
	b, err := hex.DecodeString(words)
	n, portErr := strconv.ParseUint(port, 16, 16)
	if err != nil || portErr != nil || len(b)%4 != 0 {
		return netip.AddrPort{}
	}
	for i := 0; i < len(b); i += 4 {
		binary.NativeEndian.PutUint32(b[i:], binary.BigEndian.Uint32(b[i:]))
	}
	addr, _ := netip.AddrFromSlice(b)
	return plain(netip.AddrPortFrom(addr, uint16(n)))
}
