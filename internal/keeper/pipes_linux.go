package keeper

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// pipes is a connection whose bytes take two pipes. A reader of a socket wakes
// whoever wrote to it, because there is room again; one of a pipe does not.
type pipes struct {
	in, out *os.File
	socket  net.Conn // over which they came; it says who the peer is
}

// offerPipes makes the pipes of a connection and gives the peer its ends.
func offerPipes(socket net.Conn) (_ io.ReadWriteCloser, err error) {
	uc, ok := socket.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("offer pipes: %T is no unix connection", socket)
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

// takePipes returns the connection that the peer wants: over pipes, if its
// first message brings some.
func takePipes(socket net.Conn) (io.ReadWriteCloser, error) {
	uc, ok := socket.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("take pipes: %T is no unix connection", socket)
	}
	first := make([]byte, 1)
	oob := make([]byte, unix.CmsgSpace(2*4))
	n, oobn, flags, _, err := uc.ReadMsgUnix(first, oob)
	switch {
	case err != nil:
		return nil, fmt.Errorf("take pipes: %w", err)
	case n == 0:
		return nil, fmt.Errorf("take pipes: %w", io.EOF)
	case flags&unix.MSG_CTRUNC != 0 && oobn == 0:
		return nil, fmt.Errorf("take pipes: %w", unix.EMFILE)
	}
	if oobn == 0 {
		return &begun{UnixConn: uc, first: first}, nil
	}
	messages, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, fmt.Errorf("take pipes: %w", err)
	}
	var fds []int
	for i := range messages {
		more, err := unix.ParseUnixRights(&messages[i])
		if err == nil {
			fds = append(fds, more...)
		}
	}
	var ends []*os.File
	for _, fd := range fds {
		_ = unix.SetNonblock(fd, true) // else a read holds a thread, and works
		ends = append(ends, os.NewFile(uintptr(fd), "keeper pipe"))
	}
	if len(ends) != 2 {
		for _, f := range ends {
			_ = f.Close()
		}
		return nil, fmt.Errorf("take pipes: %d of them", len(ends))
	}
	return &pipes{in: ends[0], out: ends[1], socket: socket}, nil
}

func (p *pipes) Read(b []byte) (int, error)  { return p.in.Read(b) }
func (p *pipes) Write(b []byte) (int, error) { return p.out.Write(b) }

// SyscallConn is that of the end that is written to.
func (p *pipes) SyscallConn() (syscall.RawConn, error) { return p.out.SyscallConn() }

// Close closes the connection.
func (p *pipes) Close() error { return errors.Join(p.in.Close(), p.out.Close(), p.socket.Close()) }

// begun is a connection of which the beginning was read.
type begun struct {
	*net.UnixConn
	first []byte
}

func (c *begun) Read(b []byte) (int, error) {
	if len(c.first) > 0 {
		n := copy(b, c.first)
		c.first = c.first[n:]
		return n, nil
	}
	return c.UnixConn.Read(b)
}
