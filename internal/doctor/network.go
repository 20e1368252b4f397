package doctor

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// networkChecks are about who can reach this user's servers.
func networkChecks(Options) []Check {
	return []Check{
		{Name: "servers", Try: servers},
		{Name: "sockets", Try: sockets},
	}
}

// listener is a TCP socket on which a process of ours listens.
type listener struct {
	process process
	address netip.AddrPort
}

// nobody is a user who owns nothing. Root can be that user, for an attempt.
const nobody = 65534

// servers finds this user's servers that listen on TCP and tries to use each
// without a token.
func servers(ctx context.Context) []Finding {
	list, err := listeners()
	if err != nil {
		return []Finding{warning("use Linux", "cannot look for servers: %v", err)}
	}
	if len(list) == 0 {
		return []Finding{ok("no server of yours listens on TCP")}
	}
	// At once: one that does not answer must not use the time of the others.
	found := make([]Finding, len(list))
	var wg sync.WaitGroup
	for i, l := range list {
		wg.Go(func() { found[i] = tryBoth(ctx, l) })
	}
	wg.Wait()
	return found
}

// tryBoth tries a server as this user and, if that is root, as another.
func tryBoth(ctx context.Context, l listener) Finding {
	a := attempts{own: try(ctx, dialTCP(l.address, os.Geteuid()))}
	if os.Geteuid() == 0 {
		other := try(ctx, dialTCP(l.address, nobody))
		a.other = &other
	}
	return judge(l, a)
}

// attempt is how a server took a client without a token.
type attempt struct {
	let bool // the server accepted it
	tls bool
	err error // it could not be tried
}

// attempts are those of this user and of another.
type attempts struct {
	own   attempt
	other *attempt // nil if this user cannot be another
}

// insecureFlag is the flag with which a server takes every client.
const insecureFlag = "--insecure-no-auth"

func judge(l listener, a attempts) Finding {
	where := fmt.Sprintf("%s (pid %d)", l.address, l.process.pid)
	public := !l.address.Addr().IsLoopback()
	restart := fmt.Sprintf("stop it (kill %d) and start it again", l.process.pid)
	said := slices.ContainsFunc(l.process.args, func(arg string) bool {
		return arg == insecureFlag || strings.HasPrefix(arg, insecureFlag+"=") && arg != insecureFlag+"=false"
	})
	others := a.other != nil && a.other.let || a.other == nil && a.own.let && said
	switch {
	case a.own.err != nil:
		return warning("look at its log", "cannot tell whom the server on %s serves: %v", where, a.own.err)
	case a.other != nil && a.other.err != nil:
		return warning("look at its log", "cannot tell whether the server on %s serves other users: %v", where, a.other.err)
	case a.own.let && public:
		return problem(restart+" without "+insecureFlag+", or on 127.0.0.1",
			"the server on %s takes clients without a token: every client that can reach this machine runs commands as you", where)
	case others && said:
		return warning(restart+" without "+insecureFlag, "the server on %s lets every user of this machine run commands as you, as %s says", where, insecureFlag)
	case others:
		return problem(restart+" with --ws-auth", "the server on %s lets every user of this machine run commands as you", where)
	case public && !a.own.tls:
		return warning(restart+" on a wss:// address, or on 127.0.0.1 and reach it through ssh -L",
			"the server on %s wants a token, and the token and all output cross the network unencrypted", where)
	case a.other != nil && a.own.let:
		return ok("the server on %s took your client without a token and refused another user's", where)
	case a.own.let && otherProgram(l.process.pid) != "":
		return warning(restart+" with this build of spool",
			"the server on %s took your client without a token; it is of another build of spool, which may take other users' clients, too", where)
	case a.own.let:
		return ok("the server on %s takes only your processes and root's without a token", where)
	}
	return ok("the server on %s refused a client without a token", where)
}

// dialTCP returns a function that connects to a server as a user.
func dialTCP(address netip.AddrPort, uid int) func(context.Context) (net.Conn, error) {
	if address.Addr().IsUnspecified() {
		loopback := netip.IPv6Loopback()
		if address.Addr().Is4() {
			loopback = netip.AddrFrom4([4]byte{127, 0, 0, 1})
		}
		address = netip.AddrPortFrom(loopback, address.Port())
	}
	return func(ctx context.Context) (net.Conn, error) {
		if uid != os.Geteuid() {
			return dialAs(uid, address)
		}
		return new(net.Dialer).DialContext(ctx, "tcp", address.String())
	}
}

// tryTime bounds one attempt.
const tryTime = 10 * time.Second

// errPage is the answer of a server that has a page where it was asked for a WebSocket.
var errPage = errors.New("it answered with a page")

// try asks a server for a WebSocket without a token, over TLS if it speaks that. That of
// "spool exec-server" is at every path; where "spool serve" has its page, its own path is
// tried.
func try(ctx context.Context, dial func(context.Context) (net.Conn, error)) attempt {
	ctx, cancel := context.WithTimeout(ctx, tryTime)
	defer cancel()
	a := tryAt(ctx, dial, "/")
	if errors.Is(a.err, errPage) {
		a = tryAt(ctx, dial, "/v1/rpc")
	}
	return a
}

// tryAt asks for a WebSocket at a path.
func tryAt(ctx context.Context, dial func(context.Context) (net.Conn, error), path string) attempt {
	c, err := dial(ctx)
	if err != nil {
		return attempt{err: err}
	}
	// The certificate does not matter: nothing secret is sent.
	secure := tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	if err = secure.HandshakeContext(ctx); err == nil {
		defer func() { _ = secure.Close() }()
		let, err := upgrade(ctx, secure, path)
		return attempt{let, true, err}
	}
	_ = c.Close()
	var plain tls.RecordHeaderError
	if !errors.As(err, &plain) {
		return attempt{err: err}
	}
	if c, err = dial(ctx); err != nil {
		return attempt{err: err}
	}
	defer c.Close()
	let, err := upgrade(ctx, c, path)
	return attempt{let, false, err}
}

// upgrade asks for a WebSocket at a path and reports whether the server agrees.
func upgrade(ctx context.Context, c net.Conn, path string) (bool, error) {
	if deadline, ok := ctx.Deadline(); ok {
		if err := c.SetDeadline(deadline); err != nil {
			return false, err
		}
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+c.RemoteAddr().String()+path, nil)
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
		var op *net.OpError
		if errors.As(err, &op) && op.Op == "remote error" { // TLS: the server wants a certificate
			return false, nil
		}
		return false, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusSwitchingProtocols:
		return true, nil
	case http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests:
		return false, nil
	case http.StatusOK:
		return false, errPage
	}
	return false, fmt.Errorf("it answered %s", resp.Status)
}

// sockets checks the unix sockets of this user's servers and keepers.
func sockets(context.Context) []Finding {
	paths, err := unixListeners()
	if err != nil {
		return []Finding{warning("use Linux", "cannot look for sockets: %v", err)}
	}
	var found []Finding
	for _, path := range paths {
		fi, err := os.Lstat(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the server ended, or its socket was replaced
		}
		if err != nil {
			found = append(found, warning("make it readable for you", "%v", err))
			continue
		}
		if perm := fi.Mode().Perm(); perm&0o022 != 0 {
			found = append(found, problem("chmod 600 "+path, "other users can connect to %s (mode %#o)", path, perm))
		}
	}
	if len(found) == 0 {
		found = append(found, ok("unix sockets of your servers and keepers, all closed to others: %d", len(paths)))
	}
	return found
}
