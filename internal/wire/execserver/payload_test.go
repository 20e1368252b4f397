package execserver

import (
	"bytes"
	"errors"
	"io"
	"net"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/polltest"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/wire/rpc"
)

// lentBytes is a payload that can be told apart while it is dropped.
type lentBytes struct {
	b     []byte
	held  atomic.Bool
	loads atomic.Int64
	fail  int64 // from this load on, if it is not zero
}

// noRoom is an account that holds as much as it may.
var noRoom = func() *rpc.Account {
	a := rpc.NewBudget(1).Account(0, 1)
	a.Add(1)
	return a
}()

var errLent = errors.New("cannot be read")

func (l *lentBytes) Load() ([]byte, error) {
	if n := l.loads.Add(1); l.fail > 0 && n >= l.fail {
		return nil, errLent
	}
	l.held.Store(true)
	return l.b, nil
}

func (l *lentBytes) Drop() { l.held.Store(false) }

// connected returns both ends of a connection over TCP.
func connected(t *testing.T) (*watchedConn, net.Conn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	peer, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	c, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = c.Close(), peer.Close() })
	limitSendQueue(c)
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	return &watchedConn{Conn: c, network: c, raw: raw}, peer
}

// A payload arrives whole, and is not held while the client does not read.
func TestPayloadIsDroppedWhileTheClientDoesNotRead(t *testing.T) {
	want := make([]byte, 40<<20)
	for i := range want {
		want[i] = byte(i >> 12)
	}
	for _, tt := range []struct {
		name      string
		encrypted bool // cannot wait without a part of the payload
		size      int
	}{{"plain", false, len(want)}, {"encrypted", true, len(want)}, {"small", false, 100}, {"of one step", false, writeStep}} {
		t.Run(tt.name, func(t *testing.T) {
			c, peer := connected(t)
			if tt.encrypted {
				c.raw = nil
			}
			l := &lentBytes{b: want[:tt.size]}
			turns := make(chan struct{}, 1)
			b := record.LentBatch(l, tt.size)
			p := &part{batch: &b, to: tt.size, turns: turns, account: noRoom}
			done := make(chan error, 1)
			go func() { done <- c.WritePayload([]byte("head"), p) }()
			if tt.size == len(want) {
				polltest.Until(t, "the writer waits without the payload", func() bool {
					return c.stalledFor() > 0 && l.loads.Load() > 1 && !l.held.Load() && len(turns) == 0
				})
			}
			got := make([]byte, len("head")+tt.size)
			if _, err := io.ReadFull(peer, got); err != nil {
				t.Fatal(err)
			}
			if err := <-done; err != nil {
				t.Fatal(err)
			}
			if string(got[:4]) != "head" || !bytes.Equal(got[4:], want[:tt.size]) {
				t.Error("other bytes arrived")
			}
			if l.held.Load() || len(turns) > 0 || c.stalledFor() != 0 {
				t.Errorf("after the write: held %v, turns %d", l.held.Load(), len(turns))
			}
		})
	}
}

// A small message is not held either, and neither is its turn: many clients that do
// not read would keep all others from their turns.
func TestSmallPayloadIsDroppedWhileTheClientDoesNotRead(t *testing.T) {
	c, peer := connected(t)
	filled := 0
	for n := 1; n > 0; filled += n { // until the client has no room
		if err := c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		n, _ = c.Write(make([]byte, 1<<20))
	}
	if err := c.SetWriteDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	l := &lentBytes{b: []byte("small")}
	b := record.LentBatch(l, len(l.b))
	turns := make(chan struct{}, 1)
	p := &part{batch: &b, to: len(l.b), turns: turns, account: noRoom}
	done := make(chan error, 1)
	go func() { done <- c.WritePayload(nil, p) }()
	polltest.Until(t, "the payload was copied", func() bool {
		return l.loads.Load() > 0 && !l.held.Load() && len(turns) == 0
	})
	select {
	case err := <-done:
		t.Fatalf("the client has not read: %v", err)
	default:
	}
	got := make([]byte, filled+len(l.b))
	if _, err := io.ReadFull(peer, got); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil || string(got[filled:]) != "small" {
		t.Errorf("%q, %v", got[filled:], err)
	}
}

// A payload that cannot be loaded again ends the message with its error.
func TestPayloadThatFails(t *testing.T) {
	for _, encrypted := range []bool{false, true} {
		c, peer := connected(t)
		if encrypted {
			c.raw = nil
		}
		go func() { _, _ = io.Copy(io.Discard, peer) }()
		l := &lentBytes{b: make([]byte, 40<<20), fail: 2}
		b := record.LentBatch(l, len(l.b))
		p := &part{batch: &b, to: len(l.b), turns: make(chan struct{}, 1), account: noRoom}
		err := c.WritePayload(nil, p)
		if !errors.Is(err, errLent) || l.held.Load() || len(p.turns) > 0 {
			t.Errorf("encrypted %v: %v, held %v", encrypted, err, l.held.Load())
		}
	}
}

// A client that has gone ends the write.
func TestPayloadForAClientThatHasGone(t *testing.T) {
	c, peer := connected(t)
	_ = peer.Close()
	l := &lentBytes{b: make([]byte, 40<<20)}
	b := record.LentBatch(l, len(l.b))
	p := &part{batch: &b, to: len(l.b), turns: make(chan struct{}, 1), account: noRoom}
	if err := c.WritePayload(nil, p); err == nil || l.held.Load() || len(p.turns) > 0 {
		t.Errorf("%v, held %v", err, l.held.Load())
	}
}

// Readers that wait for their clients keep none that read from sending, however
// many there are.
func TestReadersShareTurns(t *testing.T) {
	turns := make(chan struct{}, relayingAtOnce)
	stalled := make(chan error)
	const slow = 3 * relayingAtOnce
	var peers []net.Conn
	var lent []*lentBytes
	for range slow {
		c, peer := connected(t)
		l := &lentBytes{b: make([]byte, 16<<20)}
		b := record.LentBatch(l, len(l.b))
		p := &part{batch: &b, to: len(l.b), turns: turns, account: noRoom}
		go func() { stalled <- c.WritePayload(nil, p) }()
		peers, lent = append(peers, peer), append(lent, l)
	}
	polltest.Until(t, "all wait", func() bool {
		for _, l := range lent {
			if l.loads.Load() < 2 || l.held.Load() {
				return false
			}
		}
		return len(turns) == 0
	})
	c, peer := connected(t)
	go func() { _, _ = io.Copy(io.Discard, peer) }()
	l := &lentBytes{b: make([]byte, 16<<20)}
	b := record.LentBatch(l, len(l.b))
	if err := c.WritePayload(nil, &part{batch: &b, to: len(l.b), turns: turns, account: noRoom}); err != nil {
		t.Error(err)
	}
	for _, peer := range peers {
		_ = peer.Close()
		if err := <-stalled; err == nil {
			t.Error("a client that never read has everything")
		}
	}
}

// A part that waits in the middle of a message keeps its bytes while there is room,
// and gives the room back.
func TestPartKeepsItsBytesInTheMiddle(t *testing.T) {
	account := rpc.NewBudget(1<<20).Account(0, 1<<20)
	l := &lentBytes{b: make([]byte, 1000)}
	b := record.LentBatch(l, len(l.b))
	p := &part{batch: &b, to: len(l.b), turns: make(chan struct{}, 1), account: account}
	if _, err := p.Load(); err != nil {
		t.Fatal(err)
	}
	p.Pause()
	if !l.held.Load() || len(p.turns) != 0 || account.Held() != 1000 {
		t.Errorf("paused: held %v, turns %d, counted %d", l.held.Load(), len(p.turns), account.Held())
	}
	if _, err := p.Load(); err != nil || account.Held() != 0 {
		t.Errorf("loaded again: %v, counted %d", err, account.Held())
	}
	p.Pause()
	p.Drop()
	if l.held.Load() || len(p.turns) != 0 || account.Held() != 0 {
		t.Errorf("dropped: held %v, turns %d, counted %d", l.held.Load(), len(p.turns), account.Held())
	}
}
