package wasipy

import (
	"bytes"
	"context"
	"encoding/binary"
	"hash/crc32"
	"io"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
)

// FuzzImage checks that an image in the cache is refused, or encodes to the same
// bytes. With sum, it gets the right checksum, which a fuzzer does not find by
// itself.
func FuzzImage(f *testing.F) {
	page := bytes.Repeat([]byte{7}, pageSize)
	im := image{Size: 4 * pageSize, From: pageSize, To: 2 * pageSize, Hot: []span{{pageSize, 2 * pageSize}, {0, 0}}}
	f.Add(im.encode(page), false)
	f.Add(im.encode(page)[:60], true)
	im.Hot = []span{{2 * pageSize, pageSize}}
	f.Add(im.encode(page), true)
	f.Fuzz(func(t *testing.T, b []byte, sum bool) {
		if rest := len(imageMagic) + 4; sum && len(b) >= rest {
			b = bytes.Clone(b)
			binary.LittleEndian.PutUint32(b[rest-4:], crc32.Checksum(b[rest:], castagnoli))
		}
		im, err := decodeImage(b)
		if err != nil {
			return
		}
		defer im.Close()
		if !bytes.Equal(im.encode(im.contents), b) {
			t.Error("the image encodes to other bytes")
		}
		for _, s := range im.Hot {
			if s.From > s.To || s.To > im.Size {
				t.Errorf("span %+v in a memory of %d bytes", s, im.Size)
			}
		}
	})
}

// counter is a host that counts what it gets.
type counter struct{ written, asks int }

func (c *counter) Started(guest.Startup)                     {}
func (c *counter) Write(_ guest.Stream, p []byte)            { c.written += len(p) }
func (c *counter) Read(context.Context, []byte) (int, error) { return 0, io.EOF }
func (c *counter) Ask(_ context.Context, kind string, payload []byte) []byte {
	c.asks += len(kind) + len(payload)
	return []byte(`{"value":null}`)
}

// FuzzConversation lets a worker send any bytes. The parent serves each frame or
// gives the worker up, and takes nothing that was not sent.
func FuzzConversation(f *testing.F) {
	frame := func(kind byte, payload string) []byte {
		return append(append(binary.LittleEndian.AppendUint32(nil, uint32(len(payload))), kind), payload...)
	}
	f.Add(bytes.Join([][]byte{
		frame(frameStarted, `{}`), frame(frameWrite, "\x01hello"), frame(frameRead, "\x10\x00\x00\x00"), frame(frameAsk, "\x04\x00tool{}"),
		frame(frameHeard, "\x01\x00\x00\x00"), frame(frameFile, string([]byte{vfs.OpStat, 1, 1, 0, 0, 0, '/'})), frame(frameEnd, `{}`),
	}, nil))
	f.Add(frame(frameAsk, "\xff\xffx"))
	f.Add(frame(frameWrite, "\x09x"))
	f.Add(frame(frameBell, ""))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, frameEnd})
	f.Fuzz(func(t *testing.T, sent []byte) {
		ours, theirs, err := pair()
		if err != nil {
			t.Fatal(err)
		}
		w, fd, err := newWindow()
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(fd)
		l, err := newLane(ours, w, true)
		if err != nil {
			t.Fatal(err)
		}
		defer l.close()
		worker := os.NewFile(uintptr(theirs), "worker")
		done := make(chan struct{})
		go func() {
			defer close(done)
			defer worker.Close()
			if _, err := worker.Write(sent); err == nil {
				_ = unix.Shutdown(theirs, unix.SHUT_WR)
			}
			_, _ = io.Copy(io.Discard, worker)
		}()
		host := new(counter)
		d := newDirect(t.Context(), host)
		defer d.close()
		files := vfs.NewServer(vfs.NewTree(vfs.NewMemory(vfs.NewQuota(1<<20, 50))), 8)
		defer files.Close()
		c := &conversation{use: &use{lane: l}, files: files, link: d, began: time.Now()}
		if _, err := c.run(t.Context()); err != nil && c.broken != nil {
			t.Errorf("two reasons: %v, %v", err, c.broken)
		}
		if host.written+host.asks > len(sent) {
			t.Errorf("%d bytes of output and %d of asks in %d bytes", host.written, host.asks, len(sent))
		}
		l.close()
		<-done
	})
}
