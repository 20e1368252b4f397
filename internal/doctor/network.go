package doctor

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"time"
)

// networkChecks are about who can reach this user's servers.
func networkChecks(Options) []Check {
	return []Check{{Name: "servers", Try: servers}}
}

// listener is a TCP socket on which a process of ours listens.
type listener struct {
	process process
	address netip.AddrPort
}

// servers finds this user's servers that listen on TCP and tries to use each
// without a token.
func servers(ctx context.Context) []Finding {
	list, err := listeners()
	if err != nil {
		return []Finding{warning("use Linux", "cannot look for servers: %v", err)}
	}
	var found []Finding
	for _, l := range list {
		found = append(found, judge(l, try(ctx, l.address)))
	}
	if len(found) == 0 {
		found = append(found, ok("no server of yours listens on TCP"))
	}
	return found
}

// attempt is how a server took a client without a token.
type attempt struct {
	let bool // the server accepted it
	tls bool
	err error // it could not be tried
}

func judge(l listener, a attempt) Finding {
	where := fmt.Sprintf("%s (pid %d)", l.address, l.process.pid)
	public := !l.address.Addr().IsLoopback()
	restart := fmt.Sprintf("stop it (kill %d) and start it again", l.process.pid)
	switch {
	case a.err != nil:
		return warning("look at its log", "the server on %s did not answer: %v", where, a.err)
	case a.let && public:
		return problem(restart+" with --ws-auth, or on 127.0.0.1",
			"the server on %s lets every client that can reach this machine run commands as you", where)
	case a.let:
		return warning(restart+" with --ws-auth",
			"the server on %s took a client without a token: if other users can log in here, they may run commands as you", where)
	case public && !a.tls:
		return warning(restart+" on 127.0.0.1 and reach it through ssh -L, or behind a proxy with TLS",
			"the server on %s wants a token, and the token and all output cross the network unencrypted", where)
	}
	return ok("the server on %s refused a client without a token", where)
}

// tryTime bounds one attempt.
const tryTime = 2 * time.Second

// try asks a server for a WebSocket without a token, over TLS if it speaks that.
func try(ctx context.Context, address netip.AddrPort) attempt {
	if address.Addr().IsUnspecified() {
		loopback := netip.IPv6Loopback()
		if address.Addr().Is4() {
			loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		address = netip.AddrPortFrom(loopback, address.Port())
	}
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	// The certificate does not matter: nothing secret is sent.
	c, err := (&tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}}).DialContext(ctx, "tcp", address.String())
	if err == nil {
		defer c.Close()
		let, err := upgrade(ctx, c)
		return attempt{let, true, err}
	}
	var plain tls.RecordHeaderError
	if !errors.As(err, &plain) {
		return attempt{err: err}
	}
	if c, err = new(net.Dialer).DialContext(ctx, "tcp", address.String()); err != nil {
		return attempt{err: err}
	}
	defer c.Close()
	let, err := upgrade(ctx, c)
	return attempt{let, false, err}
}

// upgrade asks for a WebSocket and reports whether the server agrees.
func upgrade(ctx context.Context, c net.Conn) (bool, error) {
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return false, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.RemoteAddr().String()+"/", nil)
	if err != nil {
		return false, err
	}
	for name, value := range map[string]string{
		"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13", "Sec-WebSocket-Key": "c3Bvb2wgZG9jdG9yIDEyMw==",
	} {
		req.Header.Set(name, value)
	}
	if err := req.Write(c); err != nil {
		return false, err
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusSwitchingProtocols:
		return true, nil
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return false, nil
	}
	return false, fmt.Errorf("it answered %s", resp.Status)
}
