package zmtp

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/leaktest"
	"github.com/spool-run/spool/internal/polltest"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// listen binds a socket for a test.
func listen(t *testing.T, kind Type, receive func(*Peer, Message)) *Socket {
	t.Helper()
	s, err := Listen(kind, "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.Receive = receive
	served := make(chan error, 1)
	go func() { served <- s.Serve() }()
	t.Cleanup(func() {
		s.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return s
}

// dialer is the other end, byte by byte.
type dialer struct {
	t *testing.T
	net.Conn
	r *bufio.Reader
}

func dial(t *testing.T, s *Socket, identity string) *dialer {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	d := &dialer{t, conn, bufio.NewReader(conn)}
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	property := func(name, value string) []byte {
		b := append([]byte{byte(len(name))}, name...)
		return append(binary.BigEndian.AppendUint32(b, uint32(len(value))), value...)
	}
	d.put(greeting())
	d.put(command("READY", append(property("Socket-Type", "DEALER"), property("Identity", identity)...)))
	if _, err := io.ReadFull(d.r, make([]byte, greetingSize)); err != nil {
		t.Fatal(err)
	}
	if f := d.frame(); !f.command || !bytes.Contains(f.body, []byte("READY")) {
		t.Fatalf("the first frame is %q", f.body)
	}
	return d
}

func (d *dialer) put(b []byte) {
	d.t.Helper()
	if _, err := d.Write(b); err != nil {
		d.t.Fatal(err)
	}
}

func (d *dialer) frame() frame {
	d.t.Helper()
	f, err := readFrame(d.r, MaxMessage)
	if err != nil {
		d.t.Fatal(err)
	}
	return f
}

func (d *dialer) message() (m []string) {
	d.t.Helper()
	for {
		f := d.frame()
		m = append(m, string(f.body))
		if !f.more {
			return m
		}
	}
}

// ended reports whether the other end closes the connection.
func (d *dialer) ended() bool {
	_, err := io.Copy(io.Discard, d.r)
	timeout, _ := err.(net.Error)
	return timeout == nil || !timeout.Timeout()
}

func TestAnswers(t *testing.T) {
	var s *Socket
	s = listen(t, Router, func(p *Peer, m Message) { s.Reply(p, m) })
	for _, identity := range []string{"", "ada"} {
		d := dial(t, s, identity)
		long := strings.Repeat("x", 70_000)
		d.put(encode(Message{[]byte("a"), nil, []byte(long)}))
		if got := d.message(); !slices.Equal(got, []string{"a", "", long}) {
			t.Errorf("%q got %d frames", identity, len(got))
		}
	}
}

// TestWaitsForAPeer checks that messages to a peer that is away wait for it, the last
// ones of them.
func TestWaitsForAPeer(t *testing.T) {
	s := listen(t, Router, func(*Peer, Message) {})
	for i := range maxHeld + 2 {
		s.Send("ada", Message{binary.BigEndian.AppendUint32(nil, uint32(i))})
	}
	d := dial(t, s, "ada")
	for i := range maxHeld {
		if got := d.message(); binary.BigEndian.Uint32([]byte(got[0])) != uint32(i+2) {
			t.Fatalf("message %d is %q", i, got)
		}
	}
}

func TestPublishes(t *testing.T) {
	s := listen(t, Pub, nil)
	subscribed := make(chan string, 2)
	s.Subscribed = func(_ *Peer, topic string) { subscribed <- topic }
	if n := s.Publish(Message{[]byte("lost")}); n != 0 {
		t.Errorf("sent to %d", n)
	}
	d := dial(t, s, "")
	d.put(encode(Message{[]byte("\x01kernel.")}))
	if err := s.WaitSubscriber(t.Context()); err != nil {
		t.Fatal(err)
	}
	if topic := <-subscribed; topic != "kernel." {
		t.Errorf("the topic is %q", topic)
	}
	s.Publish(Message{[]byte("other")})
	s.Publish(Message{[]byte("kernel.stream"), []byte("hi")})
	if got := d.message(); !slices.Equal(got, []string{"kernel.stream", "hi"}) {
		t.Errorf("got %q", got)
	}
	d.put(command("CANCEL", []byte("kernel.")))
	polltest.Until(t, "the end of the subscription", func() bool { return s.Subscribers() == 0 })
	d.put(command("SUBSCRIBE", nil)) // as version 3.1 does
	<-subscribed
	d.put(command("PING", []byte("\x00\x00hello")))
	if f := d.frame(); string(f.body) != "\x04PONGhello" {
		t.Errorf("the answer to a ping is %q", f.body)
	}
}

// TestSlowPeer checks that a sender waits for a slow peer, and that nothing is lost.
func TestSlowPeer(t *testing.T) {
	s := listen(t, Pub, nil)
	d := dial(t, s, "")
	d.put(encode(Message{[]byte("\x01")}))
	if err := s.WaitSubscriber(t.Context()); err != nil {
		t.Fatal(err)
	}
	const size, count = 1 << 20, 3 * maxQueued / 2 >> 20
	sent := make(chan int, count)
	go func() {
		defer close(sent)
		for i := range count {
			s.Publish(Message{bytes.Repeat([]byte{byte(i)}, size)})
			sent <- i
		}
	}()
	for range maxQueued >> 20 {
		<-sent
	}
	for i := range count {
		if got := d.message(); len(got[0]) != size || got[0][0] != byte(i) {
			t.Fatalf("message %d has %d bytes of %d", i, len(got[0]), got[0][0])
		}
	}
	for range sent {
	}
}

// TestRefusesWhatIsTooLarge checks that a peer is cut that sends more than a message may
// have, or something else than the protocol.
func TestRefusesWhatIsTooLarge(t *testing.T) {
	s := listen(t, Router, func(*Peer, Message) { t.Error("a message arrived") })
	huge := binary.BigEndian.AppendUint64([]byte{flagLong}, MaxMessage+1)
	for name, bad := range map[string][]byte{
		"message": huge,
		"frames":  bytes.Repeat([]byte{flagMore, 0}, maxFrames+1),
		"command": binary.BigEndian.AppendUint64([]byte{flagLong | flagCommand}, maxCommand+1),
		"nothing": {flagCommand, 0},
	} {
		d := dial(t, s, "")
		_, _ = d.Write(bad)
		if !d.ended() {
			t.Errorf("%s: the connection goes on", name)
		}
	}
	conn, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	_, _ = conn.Write(bytes.Repeat([]byte("GET / HTTP/1.1\r\n"), 8))
	if d := (&dialer{t, conn, bufio.NewReader(conn)}); !d.ended() {
		t.Error("a browser is still connected")
	}
}

func FuzzFrames(f *testing.F) {
	f.Add(encode(Message{[]byte("a"), nil}))
	f.Add(ready(Router))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		for {
			fr, err := readFrame(r, MaxMessage)
			if err != nil {
				return
			}
			if fr.command {
				if _, data, err := parseCommand(fr.body); err == nil {
					_, _ = identity(data)
				}
			}
		}
	})
}
