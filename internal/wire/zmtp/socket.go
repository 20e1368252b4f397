package zmtp

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

const (
	// handshakeIn limits how long a peer may take to say what it is.
	handshakeIn = 30 * time.Second
	// stalledAfter is how long a peer may take none of the bytes that wait for it
	// before it is cut.
	stalledAfter = 30 * time.Second
	// maxQueued is how many bytes may wait for a peer before its sender waits, too.
	maxQueued = 16 << 20
	// maxHeld is how many messages wait for peers that are away.
	maxHeld = 256
	// flushIn limits how long Close waits for peers to take what was sent.
	flushIn = time.Second
	// piece is how much is written at a time, so that a slow peer is not taken for a
	// stalled one.
	piece = 1 << 20
)

// Socket is a bound socket.
type Socket struct {
	// Receive gets each message, from one goroutine for each peer. It may keep the
	// message.
	Receive func(from *Peer, m Message)
	// Subscribed gets the topic of each subscription to a PUB socket.
	Subscribed func(p *Peer, topic string)

	kind     Type
	listener net.Listener
	wg       sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	peers   map[*Peer]bool
	named   map[string]*Peer // of a ROUTER
	held    []held           // for peers that are away
	changed chan struct{}    // closed when a subscription comes; nil without waiters
}

// held is a message for a peer that is away.
type held struct {
	to      string
	message []byte
}

// Listen binds a socket. [Socket.Serve] accepts its peers.
func Listen(kind Type, network, address string) (*Socket, error) {
	l, err := net.Listen(network, address)
	if err != nil {
		return nil, fmt.Errorf("bind the %s socket: %w", kind, err)
	}
	return &Socket{kind: kind, listener: l, peers: make(map[*Peer]bool), named: make(map[string]*Peer)}, nil
}

// Addr returns where the socket is bound.
func (s *Socket) Addr() net.Addr { return s.listener.Addr() }

// Serve accepts peers until the socket is closed.
func (s *Socket) Serve() error {
	for {
		conn, err := s.listener.Accept()
		if err != nil {
			if errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("accept a peer of the %s socket: %w", s.kind, err)
		}
		p := &Peer{conn: conn, socket: s}
		p.wake.L = &p.mu
		s.mu.Lock()
		if s.closed {
			s.mu.Unlock()
			_ = conn.Close()
			return nil
		}
		s.peers[p] = true
		s.wg.Add(2)
		s.mu.Unlock()
		go p.write()
		go p.read()
	}
}

// Close ends the socket after its peers have taken what was sent to them, or have not
// for a second.
func (s *Socket) Close() {
	_ = s.listener.Close()
	s.mu.Lock()
	s.closed = true
	for p := range s.peers {
		p.finish()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// Send sends a message to the peer of a ROUTER socket with this identity. If it is away,
// the message waits for it.
func (s *Socket) Send(to string, m Message) {
	b := encode(m)
	s.mu.Lock()
	p := s.named[to]
	if p == nil {
		s.held = append(s.held, held{to, b})
		s.held = s.held[max(0, len(s.held)-maxHeld):]
	}
	s.mu.Unlock()
	if p != nil {
		p.send(b)
	}
}

// Reply sends a message to the peer of a ROUTER socket that sent another one, also if it
// has reconnected meanwhile.
func (s *Socket) Reply(to *Peer, m Message) {
	if to.Identity == "" {
		to.Send(m)
		return
	}
	s.Send(to.Identity, m)
}

// Publish sends a message to every peer of a PUB socket that subscribed to the
// beginning of its first frame, and returns how many those are.
func (s *Socket) Publish(m Message) int {
	var to []*Peer
	s.mu.Lock()
	for p := range s.peers {
		if p.wants(m[0]) {
			to = append(to, p)
		}
	}
	s.mu.Unlock()
	b := encode(m)
	sent := 0
	for _, p := range to {
		if p.send(b) {
			sent++
		}
	}
	return sent
}

// Subscribers returns how many peers have subscribed to something.
func (s *Socket) Subscribers() int {
	n, _ := s.subscribers()
	return n
}

// subscribers also returns a channel that is closed when there may be more.
func (s *Socket) subscribers() (int, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.changed == nil {
		s.changed = make(chan struct{})
	}
	n := 0
	for p := range s.peers {
		if len(p.topics) > 0 {
			n++
		}
	}
	return n, s.changed
}

// WaitSubscriber waits until a peer has subscribed to something.
func (s *Socket) WaitSubscriber(ctx context.Context) error {
	for {
		n, changed := s.subscribers()
		if n > 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Drain waits until the peers were sent everything, or until the time is up.
func (s *Socket) Drain(limit time.Duration) {
	var peers []*Peer
	s.mu.Lock()
	for p := range s.peers {
		peers = append(peers, p)
	}
	s.mu.Unlock()
	until := time.Now().Add(limit)
	for _, p := range peers {
		p.drain(until)
	}
}

// Peer is the other end of a connection.
type Peer struct {
	// Identity is the name that the peer gave itself. It may be empty.
	Identity string

	conn   net.Conn
	socket *Socket
	topics map[string]int // guarded by the lock of the socket

	mu     sync.Mutex
	wake   sync.Cond // the queue changed
	queue  [][]byte
	queued int
	ending bool // after the queue is empty
	closed bool
}

// Send sends a message. It waits while too much waits for the peer, and reports whether
// the peer is still there.
func (p *Peer) Send(m Message) bool { return p.send(encode(m)) }

func (p *Peer) send(b []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.queued >= maxQueued && !p.closed {
		p.wake.Wait()
	}
	if p.closed || p.ending {
		return false
	}
	p.queue = append(p.queue, b)
	p.queued += len(b)
	p.wake.Broadcast()
	return true
}

// drain waits until everything was written, or until a time.
func (p *Peer) drain(until time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.queued == 0 {
		return
	}
	late := time.AfterFunc(time.Until(until), func() {
		p.mu.Lock() // not between the look at the clock and the wait
		p.wake.Broadcast()
		p.mu.Unlock()
	})
	defer late.Stop()
	for p.queued > 0 && !p.closed && time.Now().Before(until) {
		p.wake.Wait()
	}
}

// finish ends the connection when everything was written.
func (p *Peer) finish() {
	p.mu.Lock()
	p.ending = true
	p.wake.Broadcast()
	p.mu.Unlock()
	_ = p.conn.SetDeadline(time.Now().Add(flushIn))
}

// close ends the connection at once.
func (p *Peer) close() {
	_ = p.conn.Close()
	p.mu.Lock()
	p.closed, p.queue, p.queued = true, nil, 0
	p.wake.Broadcast()
	p.mu.Unlock()
}

// write writes what is queued, the greeting first.
func (p *Peer) write() {
	defer p.socket.wg.Done()
	defer p.close()
	if !p.put(append(greeting(), ready(p.socket.kind)...)) {
		return
	}
	for {
		p.mu.Lock()
		for len(p.queue) == 0 && !p.ending && !p.closed {
			p.wake.Wait()
		}
		batch := p.queue
		p.queue = nil
		done := p.closed || len(batch) == 0
		p.mu.Unlock()
		if done {
			return
		}
		for _, b := range batch {
			if !p.put(b) {
				return
			}
			p.mu.Lock()
			p.queued = max(0, p.queued-len(b))
			p.wake.Broadcast()
			p.mu.Unlock()
		}
	}
}

// put writes bytes and reports whether the peer took them.
func (p *Peer) put(b []byte) bool {
	for len(b) > 0 {
		n := min(len(b), piece)
		p.mu.Lock()
		if !p.ending { // else there is a deadline
			_ = p.conn.SetWriteDeadline(time.Now().Add(stalledAfter))
		}
		p.mu.Unlock()
		if _, err := p.conn.Write(b[:n]); err != nil {
			return false
		}
		b = b[n:]
	}
	return true
}

// read reads messages until the connection ends.
func (p *Peer) read() {
	defer p.socket.wg.Done()
	defer p.socket.remove(p)
	defer p.close()
	r := bufio.NewReaderSize(p.conn, 64<<10)
	_ = p.conn.SetReadDeadline(time.Now().Add(handshakeIn))
	if p.handshake(r) != nil {
		return
	}
	_ = p.conn.SetReadDeadline(time.Time{})
	p.socket.add(p)
	for {
		m, err := p.message(r)
		if err != nil {
			return
		}
		switch p.socket.kind {
		case Pub:
			if len(m) == 1 && len(m[0]) > 0 {
				p.subscribe(m[0][0] == 1, string(m[0][1:]))
			}
		default:
			p.socket.Receive(p, m)
		}
	}
}

// handshake reads the greeting and the READY command of the peer.
func (p *Peer) handshake(r io.Reader) error {
	g := make([]byte, greetingSize)
	if _, err := io.ReadFull(r, g); err != nil {
		return err
	}
	if err := checkGreeting(g); err != nil {
		return err
	}
	f, err := readFrame(r, 0)
	if err != nil {
		return err
	}
	name, data, err := parseCommand(f.body)
	if err != nil || !f.command || name != "READY" {
		return errors.New("the peer did not say READY")
	}
	p.Identity, err = identity(data)
	return err
}

// message reads a message. It answers commands.
func (p *Peer) message(r io.Reader) (Message, error) {
	var m Message
	left := MaxMessage
	for {
		f, err := readFrame(r, left)
		if err != nil {
			return nil, err
		}
		if f.command {
			if err := p.command(f.body); err != nil {
				return nil, err
			}
			continue
		}
		if left -= len(f.body); len(m) == maxFrames {
			return nil, errTooLarge
		}
		m = append(m, f.body)
		if !f.more {
			return m, nil
		}
	}
}

func (p *Peer) command(body []byte) error {
	name, data, err := parseCommand(body)
	if err != nil {
		return err
	}
	switch name {
	case "PING": // how long to wait for the next one, and what to answer
		p.send(command("PONG", data[min(2, len(data)):]))
	case "SUBSCRIBE":
		p.subscribe(true, string(data))
	case "CANCEL":
		p.subscribe(false, string(data))
	case "ERROR":
		return errors.New("the peer refused the connection")
	}
	return nil
}

// subscribe begins or ends a subscription.
func (p *Peer) subscribe(begin bool, topic string) {
	s := p.socket
	s.mu.Lock()
	if p.topics == nil {
		p.topics = make(map[string]int)
	}
	if begin {
		p.topics[topic]++
	} else if p.topics[topic]--; p.topics[topic] <= 0 {
		delete(p.topics, topic)
	}
	if s.changed != nil {
		close(s.changed)
		s.changed = nil
	}
	s.mu.Unlock()
	if begin && s.Subscribed != nil {
		s.Subscribed(p, topic)
	}
}

// wants reports whether the peer subscribed to a topic.
func (p *Peer) wants(topic []byte) bool {
	for t := range p.topics {
		if strings.HasPrefix(string(topic), t) {
			return true
		}
	}
	return false
}

// add makes a peer known by its identity, in place of an older one that reconnected, and
// sends what waits for it.
func (s *Socket) add(p *Peer) {
	if s.kind != Router || p.Identity == "" {
		return
	}
	s.mu.Lock()
	s.named[p.Identity] = p
	var waits [][]byte
	rest := s.held[:0]
	for _, h := range s.held {
		if h.to == p.Identity {
			waits = append(waits, h.message)
		} else {
			rest = append(rest, h)
		}
	}
	s.held = rest
	s.mu.Unlock()
	for _, b := range waits {
		p.send(b)
	}
}

func (s *Socket) remove(p *Peer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.peers, p)
	if s.named[p.Identity] == p {
		delete(s.named, p.Identity)
	}
}
