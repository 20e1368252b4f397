package cluster

import (
	"bufio"
	"context"
	"crypto/subtle"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spool-run/spool/client"
	userpeer "github.com/spool-run/spool/internal/peer"
)

// What two nodes of one machine say to each other does not leave its kernel, and needs no
// encryption. So one that connects to another asks it, over TLS as always, for the way to its
// Unix socket. The node answers if that connection is one within the machine, without a proxy
// in between, and names the socket, a ticket and a proof. On the socket each end asks the
// kernel for the user of the other, the one that connects shows the ticket, and the node
// answers with the proof: so both are those that TLS has shown them to be. If any of this
// fails, the connection has TLS.

// nearPath is the path of both requests: for a ticket, and with one.
const nearPath = "/v1/near"

const (
	// nearFor is how long a ticket is good.
	nearFor = dialTimeout
	// maxTickets is how many tickets may be out. Each is used at once.
	maxTickets = 64
	// nearAnswerBytes is how much of an answer is read.
	nearAnswerBytes = 16 << 10
	// nearSendBytes is how much the kernel queues on a socket, so that a batch of records
	// is written at once. It may allow less.
	nearSendBytes = 512 << 10
)

// errNotNear says that a node is not of this machine, or has no socket.
var errNotNear = errors.New("the node is not one of this machine")

// SocketPath is where the socket of a node is, for other nodes of its machine.
func SocketPath(state string) (string, error) {
	return filepath.Abs(filepath.Join(state, dirName, socketFile))
}

// Near is the socket of this node, for other nodes of its machine.
type Near struct {
	socket string // empty if there is none

	mu      sync.Mutex
	tickets map[string]ticket
}

// ticket is what was answered for one.
type ticket struct {
	proof string
	until time.Time
}

// nearAnswer is the way to a socket.
type nearAnswer struct {
	Socket string `json:"socket"`
	Ticket string `json:"ticket"`
	Proof  string `json:"proof"`
}

func newNear(socket string) *Near { return &Near{socket: socket, tickets: make(map[string]ticket)} }

// serveTicket answers another node that has connected with TLS.
func (n *Near) serveTicket(w http.ResponseWriter, req *http.Request) {
	if _, ok := caller(w, req); !ok {
		return
	}
	q := req.URL.Query()
	to, _ := req.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if n.socket == "" || to == nil || q.Get("from") != req.RemoteAddr || q.Get("to") != to.String() {
		http.Error(w, errNotNear.Error(), http.StatusNotFound)
		return
	}
	a := nearAnswer{n.socket, newNonce() + newNonce(), newNonce() + newNonce()}
	if !n.give(&a) {
		http.Error(w, fmt.Sprintf("%d tickets are out", maxTickets), http.StatusServiceUnavailable)
		return
	}
	_ = json.NewEncoder(w).Encode(a) // the other node may have left
}

// give makes a ticket good. It reports false if there are too many.
func (n *Near) give(a *nearAnswer) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := time.Now()
	for id, t := range n.tickets {
		if now.After(t.until) {
			delete(n.tickets, id)
		}
	}
	if len(n.tickets) >= maxTickets {
		return false
	}
	n.tickets[a.Ticket] = ticket{a.Proof, now.Add(nearFor)}
	return true
}

// take returns the proof that belongs to a ticket, once.
func (n *Near) take(id string) (proof string, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	t, ok := n.tickets[id]
	delete(n.tickets, id)
	return t.proof, ok && time.Now().Before(t.until)
}

// nearConn is what is known about a connection of the socket.
type nearConn struct{ admitted atomic.Bool }

type nearKey struct{}

// ConnContext is that of the [http.Server] of the socket.
func (n *Near) ConnContext(ctx context.Context, c net.Conn) context.Context {
	if u, ok := c.(*net.UnixConn); ok {
		_ = u.SetWriteBuffer(nearSendBytes) // with less it takes more calls
	}
	return context.WithValue(ctx, nearKey{}, new(nearConn))
}

// Handler returns the handler of the socket: h for connections that have shown a ticket. The
// caller has checked the user at the other end.
func (n *Near) Handler(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		c, ok := req.Context().Value(nearKey{}).(*nearConn)
		switch {
		case !ok:
		case c.admitted.Load():
			h.ServeHTTP(w, req)
			return
		case req.Method == http.MethodPost && req.URL.Path == nearPath:
			id, _ := strings.CutPrefix(req.Header.Get("Authorization"), "Bearer ")
			if proof, ok := n.take(id); ok {
				c.admitted.Store(true)
				_, _ = io.WriteString(w, proof) // the other node may have left
				return
			}
		}
		http.Error(w, "only nodes of the cluster with a ticket connect here", http.StatusForbidden)
	})
}

// dialNear connects to a node of this machine over its socket. The error is not final: with
// TLS the node may be reached.
func dialNear(ctx context.Context, config *tls.Config, addr, path string) (connection, error) {
	a, err := askNear(ctx, config, addr)
	if err != nil {
		return nil, err
	}
	c, err := client.Dial(ctx, "http://localhost"+path, client.Options{Connect: a.connect, Dial: dialTimeout, Reconnect: -1})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// askNear asks a node for the way to its socket.
func askNear(ctx context.Context, config *tls.Config, addr string) (a nearAnswer, err error) {
	if !isHere(ctx, addr) {
		return a, errNotNear
	}
	c, err := (&tls.Dialer{Config: config}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return a, err
	}
	defer cut(c)
	defer context.AfterFunc(ctx, func() { cut(c) })()
	// A proxy in between would have another connection on each side.
	q := url.Values{"from": {c.LocalAddr().String()}, "to": {c.RemoteAddr().String()}}
	b, err := post(ctx, c, "https://"+serverName+nearPath+"?"+q.Encode(), "")
	if err == nil {
		err = json.Unmarshal(b, &a)
	}
	if err == nil && !filepath.IsAbs(a.Socket) {
		err = errNotNear
	}
	return a, err
}

// connect connects to the socket, and shows the ticket.
func (a *nearAnswer) connect(ctx context.Context, _, _ string) (net.Conn, error) {
	c, err := new(net.Dialer).DialContext(ctx, "unix", a.Socket)
	if err != nil {
		return nil, err
	}
	return setUp(ctx, c, func() (net.Conn, error) {
		if _, err := userpeer.Check(c); err != nil {
			return nil, err
		}
		proof, err := post(ctx, c, "http://localhost"+nearPath, a.Ticket)
		if err == nil && subtle.ConstantTimeCompare(proof, []byte(a.Proof)) != 1 {
			err = errors.New("the process at the socket is not the node")
		}
		return c, err
	})
}

// post sends a request over a connection, and returns the answer. The connection can be used
// for further ones.
func post(ctx context.Context, c net.Conn, to, token string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, nil)
	if err != nil {
		return nil, err
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	if err := req.Write(c); err != nil {
		return nil, err
	}
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, req)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, nearAnswerBytes))
	err = errors.Join(err, resp.Body.Close())
	switch {
	case err != nil:
		return nil, err
	case resp.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("%w: the node answered %s", errNotNear, resp.Status)
	case in.Buffered() > 0:
		return nil, errors.New("the node says more than it was asked for")
	}
	return b, nil
}

// isHere reports whether an address is one of this machine: the kernel would use it for both
// ends of a connection. Nothing is sent.
func isHere(ctx context.Context, addr string) bool {
	c, err := new(net.Dialer).DialContext(ctx, "udp", addr)
	if err != nil {
		return false
	}
	defer c.Close()
	from, ok1 := c.LocalAddr().(*net.UDPAddr)
	to, ok2 := c.RemoteAddr().(*net.UDPAddr)
	return ok1 && ok2 && from.IP.Equal(to.IP)
}
