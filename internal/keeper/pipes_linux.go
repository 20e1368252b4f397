package keeper

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/fdpass"
)

// pipes is a connection over two pipes. Reading from a socket wakes the writer,
// because there is room again; reading from a pipe does not.
type pipes struct {
	in, out *os.File
	socket  net.Conn // carried the pipes; it stays open as long as they do
}

// offerPipes creates the pipes of a connection and sends the peer its ends.
func offerPipes(socket net.Conn) (_ io.ReadWriteCloser, err error) {
	uc, ok := socket.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("offer pipes: %T is not a unix connection", socket)
	}
	in, theirOut, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("offer pipes: %w", err)
	}
	defer theirOut.Close()
	theirIn, out, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("offer pipes: %w", err), in.Close())
	}
	defer theirIn.Close()
	p := &pipes{in: in, out: out, socket: socket}
	if _, _, err := uc.WriteMsgUnix([]byte{0}, unix.UnixRights(int(theirIn.Fd()), int(theirOut.Fd())), nil); err != nil {
		return nil, errors.Join(fmt.Errorf("offer pipes: %w", err), in.Close(), out.Close())
	}
	return p, nil
}

// acceptPipes returns the connection that the peer uses: over pipes if its first
// message carries their descriptors, else over the socket.
func acceptPipes(socket net.Conn) (io.ReadWriteCloser, error) {
	uc, ok := socket.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("accept pipes: %T is not a unix connection", socket)
	}
	first := make([]byte, 1)
	oob := make([]byte, fdpass.Space(2))
	n, oobn, flags, _, err := uc.ReadMsgUnix(first, oob)
	switch {
	case err != nil:
		return nil, fmt.Errorf("accept pipes: %w", err)
	case n == 0:
		return nil, fmt.Errorf("accept pipes: %w", io.EOF)
	case flags&unix.MSG_CTRUNC != 0 && oobn == 0:
		return nil, fmt.Errorf("accept pipes: %w", unix.EMFILE)
	}
	if oobn == 0 {
		return &peekedConn{UnixConn: uc, first: first}, nil
	}
	fds, err := fdpass.Exactly(oob[:oobn], 2)
	if err != nil {
		return nil, fmt.Errorf("accept pipes: %w", err)
	}
	var ends []*os.File
	for _, fd := range fds {
		_ = unix.SetNonblock(fd, true) // without it a read blocks a thread, but works
		ends = append(ends, os.NewFile(uintptr(fd), "keeper pipe"))
	}
	return &pipes{in: ends[0], out: ends[1], socket: socket}, nil
}

func (p *pipes) Read(b []byte) (int, error)  { return p.in.Read(b) }
func (p *pipes) Write(b []byte) (int, error) { return p.out.Write(b) }

// SyscallConn returns the connection for writing.
func (p *pipes) SyscallConn() (syscall.RawConn, error) { return p.out.SyscallConn() }

// Close closes the pipes and the socket.
func (p *pipes) Close() error { return errors.Join(p.in.Close(), p.out.Close(), p.socket.Close()) }

// peekedConn is a connection whose first bytes have been read already.
type peekedConn struct {
	*net.UnixConn
	first []byte
}

func (c *peekedConn) Read(b []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.UnixConn.Read(b)
}
