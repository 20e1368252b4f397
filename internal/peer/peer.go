// Package peer tells which user is at the other end of a connection within this
// machine. The kernel answers, so a server needs no secret to recognize the
// processes of its own user, and a process of another user cannot pretend.
//
// For a unix socket the answer comes with the connection. For TCP the kernel is
// asked for the owner of the socket at the other end, which it knows if that
// socket is on this machine and in the same network namespace.
package peer

import (
	"errors"
	"fmt"
	"net"
	"os"
)

// ErrUnknown is wrapped by the error of a connection whose other end cannot be
// determined: it is on another machine or in another network namespace, it has
// closed the connection, or this platform does not tell.
var ErrUnknown = errors.New("the user at the other end of the connection cannot be determined")

// OtherUserError is the error of a connection of another user.
type OtherUserError struct{ UID int }

func (e *OtherUserError) Error() string {
	return fmt.Sprintf("the connection belongs to user %d, and only user %d and root are accepted", e.UID, os.Geteuid())
}

// UID returns the user of the process that opened the other end of a
// connection. Connections that wrap another, as TLS does, are unwrapped.
func UID(c net.Conn) (int, error) {
	for {
		switch inner := c.(type) {
		case *net.UnixConn:
			return unixUID(inner)
		case *net.TCPConn:
			return tcpUID(inner)
		case interface{ NetConn() net.Conn }:
			c = inner.NetConn()
		default:
			return 0, fmt.Errorf("%w: it is a %T", ErrUnknown, c)
		}
	}
}

// Check returns the user at the other end of a connection, and an error unless
// it is the user of this process or root.
func Check(c net.Conn) (uid int, err error) {
	if uid, err = UID(c); err != nil {
		return 0, err
	}
	if uid != os.Geteuid() && uid != 0 {
		return uid, &OtherUserError{uid}
	}
	if ambiguous(uid) {
		return uid, fmt.Errorf("%w: user %d stands for every user outside of this user namespace", ErrUnknown, uid)
	}
	return uid, nil
}

// ProbeTCP checks that the kernel tells the user of TCP connections within this
// machine, with a connection of this process to itself at a loopback address.
func ProbeTCP(ip string) error {
	ln, err := net.Listen("tcp", net.JoinHostPort(ip, "0"))
	if err != nil {
		return err
	}
	defer ln.Close()
	out, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		return err
	}
	defer out.Close()
	in, err := ln.Accept()
	if err != nil {
		return err
	}
	defer in.Close()
	_, err = Check(in)
	return err
}
