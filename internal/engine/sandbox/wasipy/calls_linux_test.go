package wasipy

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
)

// A guest polls for at most maxSubscriptions things at once.
func TestSubscriptionsAreBounded(t *testing.T) {
	const count = (maxSubscriptions + 1) * (subscriptionSize + eventSize)
	for n, want := range map[uint64]vfs.Errno{0: vfs.EINVAL, maxSubscriptions: 0, maxSubscriptions + 1: vfs.EINVAL} {
		g := &guestCall{mem: make([]byte, count+4)}
		for at := 0; at < (maxSubscriptions+1)*subscriptionSize; at += subscriptionSize {
			g.mem[at+8] = pollWrite
		}
		g.args = []uint64{0, (maxSubscriptions + 1) * subscriptionSize, n, count}
		if got := vfs.Errno(g.poll()); got != want {
			t.Errorf("%d subscriptions: %v, want %v", n, got, want)
		}
		if ready := uint64(g.get32(count)); want == 0 && ready != n {
			t.Errorf("%d of %d subscriptions are ready", ready, n)
		}
	}
}

// A read or write has at most maxVectors pieces of memory.
func TestVectorsAreBounded(t *testing.T) {
	g := &guestCall{mem: make([]byte, (maxVectors+1)*8)}
	for k := range maxVectors + 1 {
		binary.LittleEndian.PutUint32(g.mem[8*k+4:], 1) // the byte at 0
	}
	for n, want := range map[uint32]error{maxVectors: nil, maxVectors + 1: vfs.EINVAL} {
		done := uint32(0)
		total, err := g.vectors(0, n, func(p []byte) (int, error) {
			done++
			return len(p), nil
		})
		if !errors.Is(err, want) || total != done || err == nil && total != n || err != nil && done != 0 {
			t.Errorf("%d pieces: %d done, %v, want %v", n, total, err, want)
		}
	}
}

// answerer is a host that answers an ask with a number of bytes.
type answerer struct {
	quietHost
	bytes int
}

func (h answerer) Ask(context.Context, string, []byte) []byte { return make([]byte, h.bytes) }

// An answer has at most guest.MaxAnswerBytes, whether the guest runs here or in a
// worker. In place of a larger one the guest gets an error.
func TestAnswersAreBounded(t *testing.T) {
	for size, want := range map[int]int{guest.MaxAnswerBytes: guest.MaxAnswerBytes, guest.MaxAnswerBytes + 1: len(tooLarge)} {
		d := newDirect(t.Context(), answerer{bytes: size})
		defer d.close()
		g := &guestCall{instance: &instance{link: d, start: time.Now()}, args: []uint64{0, 1, 1, 1}, mem: []byte("k1")}
		if got := int(g.ask()); got != want || got != len(g.reply) {
			t.Errorf("here, an answer of %d bytes has %d for the guest, want %d", size, got, want)
		}
		if size > guest.MaxAnswerBytes && !bytes.Equal(g.reply, tooLarge) {
			t.Errorf("here, in place of %d bytes the guest gets %q", size, g.reply)
		}

		parent, worker := lanes(t)
		c := &conversation{use: &use{lane: parent}, link: d}
		done := make(chan error, 1)
		go func() { done <- c.serve(frameAsk, append(binary.LittleEndian.AppendUint16(nil, 1), "k1"...)) }()
		kind, b, err := worker.recv(patient)
		if err != nil || kind != frameAnswer || len(b) != 1+want || b[0] != statusOK {
			t.Errorf("in a worker, an answer of %d bytes: frame %q of %d bytes, %v", size, kind, len(b), err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}
