package egress

import (
	"context"
	"errors"
	"io"
	"net/netip"
	"strconv"
	"syscall"
	"time"
)

// socksVersion is the first byte of a SOCKS5 connection.
const socksVersion = 5

// The bytes of SOCKS5 (RFC 1928).
const (
	socksNoAuth    = 0
	socksNone      = 0xff
	socksConnect   = 1
	socksIPv4      = 1
	socksName      = 3
	socksIPv6      = 4
	socksOK        = 0
	socksFailed    = 1
	socksRefused   = 2
	socksNoRoute   = 4
	socksNobody    = 5
	socksNoCommand = 7
	socksNoAddress = 8
)

// serveSOCKS serves a connection whose first byte was read.
func (p *Proxy) serveSOCKS(c *inbound) {
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	if c.SetDeadline(time.Now().Add(headerTimeout)) != nil {
		return
	}
	t, code, err := readSOCKS(c)
	if err != nil {
		return
	}
	if code != socksOK {
		replySOCKS(c, code)
		return
	}
	if c.SetDeadline(time.Time{}) != nil {
		return
	}
	addrs, err := p.decide(ctx, Query{t, ProtocolSOCKS, "", c.RemoteAddr().String(), p})
	if err != nil {
		replySOCKS(c, socksCode(err))
		return
	}
	server, err := p.connect(ctx, t, addrs)
	if err != nil {
		replySOCKS(c, socksCode(err))
		return
	}
	if !p.own(server) {
		return
	}
	defer p.disown(server)
	if replySOCKS(c, socksOK) {
		p.relay(c, nil, server, t)
	}
}

// readSOCKS reads what the client wants. A code other than zero is why it cannot have
// it; an error is the end of the connection.
func readSOCKS(c *inbound) (t Target, code byte, err error) {
	var b [256]byte
	read := func(n int) []byte {
		if err == nil {
			_, err = io.ReadFull(c, b[:n])
		}
		return b[:n]
	}
	methods := read(int(read(1)[0]))
	if err != nil {
		return t, 0, err
	}
	method := byte(socksNone)
	for _, m := range methods {
		if m == socksNoAuth {
			method = socksNoAuth
		}
	}
	if _, err := c.Write([]byte{socksVersion, method}); err != nil {
		return t, 0, err
	}
	if method == socksNone {
		return t, 0, errors.New("the client wants to authenticate")
	}
	head := read(4)
	version, command, kind := head[0], head[1], head[3]
	if err == nil && version != socksVersion {
		err = errors.New("not SOCKS5")
	}
	var host string
	switch kind {
	case socksIPv4, socksIPv6:
		size := 4
		if kind == socksIPv6 {
			size = 16
		}
		if addr, ok := netip.AddrFromSlice(read(size)); ok {
			host = addr.String()
		}
	case socksName:
		host = string(read(int(read(1)[0])))
	default:
		return t, socksNoAddress, err
	}
	port := read(2)
	if err != nil {
		return t, 0, err
	}
	if command != socksConnect {
		return t, socksNoCommand, nil
	}
	if t, err = newTarget(host, strconv.Itoa(int(port[0])<<8|int(port[1]))); err != nil {
		return t, socksRefused, nil //nolint:nilerr // the reply says that it is refused
	}
	return t, socksOK, nil
}

// socksCode is the reply to a target that cannot be reached.
func socksCode(err error) byte {
	var no *refusal
	var block *Block
	switch {
	case errors.As(err, &no), errors.As(err, &block):
		return socksRefused
	case errors.Is(err, syscall.ECONNREFUSED):
		return socksNobody
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return socksNoRoute
	}
	return socksFailed
}

// replySOCKS reports whether the reply was sent.
func replySOCKS(c *inbound, code byte) bool {
	_, err := c.Write([]byte{socksVersion, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
	return err == nil
}
