//go:build unix

// Package fdpass passes descriptors from one process to another over unix
// sockets.
package fdpass

import (
	"errors"
	"fmt"
	"io"

	"golang.org/x/sys/unix"
)

// ErrNone is returned if a message has no descriptors, or not as many as were
// to come.
var ErrNone = errors.New("the message does not have the expected descriptors")

// Space is how large the buffer for the control message of n descriptors is.
func Space(n int) int { return unix.CmsgSpace(n * 4) }

// Parse returns the descriptors of a control message.
func Parse(control []byte) ([]int, error) {
	if len(control) == 0 {
		return nil, nil
	}
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return nil, fmt.Errorf("parse control message: %w", err)
	}
	var fds []int
	for i := range messages {
		data := &messages[i].Data
		*data = (*data)[:len(*data)&^3] // ParseUnixRights takes whole descriptors only
		more, err := unix.ParseUnixRights(&messages[i])
		if err == nil { // other messages have none
			fds = append(fds, more...)
		}
	}
	return fds, nil
}

// Exactly is [Parse] for a message that has n descriptors. Others are closed.
func Exactly(control []byte, n int) ([]int, error) {
	fds, err := Parse(control)
	if err != nil {
		return nil, err
	}
	if len(fds) != n {
		for _, fd := range fds {
			_ = unix.Close(fd)
		}
		return nil, fmt.Errorf("%w: %d, want %d", ErrNone, len(fds), n)
	}
	return fds, nil
}

// Send sends a message with descriptors over a socket. They stay open here.
func Send(socket int, message []byte, fds ...int) error {
	for {
		err := unix.Sendmsg(socket, message, unix.UnixRights(fds...), nil, sendFlags)
		if err != unix.EINTR {
			return err
		}
	}
}

// Receive waits for a message of one byte with n descriptors, which are closed
// on exec. It returns [io.EOF] if the other end is closed.
func Receive(socket, n int) ([]int, error) {
	var b [1]byte
	control := make([]byte, Space(n))
	for {
		got, size, _, _, err := unix.Recvmsg(socket, b[:], control, receiveFlags)
		switch {
		case err == unix.EINTR:
			continue
		case err != nil:
			return nil, err
		case got == 0:
			return nil, io.EOF
		}
		return Exactly(control[:size], n)
	}
}
