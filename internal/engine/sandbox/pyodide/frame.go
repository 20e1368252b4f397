package pyodide

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
)

// An interpreter and its host exchange frames over one connection. The
// interpreter's frames begin with the length of the payload as u32, the
// operation as u8 and three bytes that are zero; the host's replies begin with
// the length of the payload as u32. The host only replies, except for the frame
// that begins a script, which has the form of a reply. Numbers are
// little-endian. runner.mjs has the other side.
const (
	frameHeader = 8
	replyHeader = 4
)

// maxFrame bounds the payload of a frame of an interpreter. runner.mjs divides
// what is longer.
const maxFrame = 4 << 20

// maxScript bounds the request that begins a script.
const maxScript = 64 << 20

// ErrProtocol means that an interpreter sent a malformed frame.
var ErrProtocol = errors.New("the interpreter violated the protocol")

type op byte

const (
	opStdout  op = 1 // bytes; no reply
	opStderr  op = 2 // bytes; no reply
	opStdin   op = 3 // how many at most → bytes, none at the end
	opAsk     op = 4 // length of the kind, kind, payload → reply
	opStarted op = 5 // no reply
	opDone    op = 6 // guest.BootResult; no reply
	opFailed  op = 7 // text; no reply
	opReady   op = 8 // readyInfo; no reply
	opFile    op = 9 // a request of vfs.Server → its answer
)

// frame is a request of an interpreter. Its payload is valid until the next
// frame is read.
type frame struct {
	op      op
	payload []byte
}

// frames reads the frames of an interpreter.
type frames struct {
	r   *bufio.Reader
	buf []byte
}

func newFrames(r io.Reader) *frames {
	return &frames{r: bufio.NewReaderSize(newHotReader(r), 64<<10)}
}

func (f *frames) next() (frame, error) {
	head, err := f.r.Peek(frameHeader)
	if err != nil {
		if errors.Is(err, io.EOF) && len(head) > 0 {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	n := binary.LittleEndian.Uint32(head)
	fr := frame{op: op(head[4])}
	if n > maxFrame {
		return frame{}, fmt.Errorf("%w: a frame of %d bytes", ErrProtocol, n)
	}
	if _, err := f.r.Discard(frameHeader); err != nil {
		return frame{}, err
	}
	if cap(f.buf) < int(n) {
		f.buf = make([]byte, max(int(n), 4<<10))
	}
	fr.payload = f.buf[:n]
	if _, err := io.ReadFull(f.r, fr.payload); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return frame{}, err
	}
	return fr, nil
}

// replies writes the host's replies, each in one write.
type replies struct {
	w   io.Writer
	buf []byte
}

func newReplies(w io.Writer) *replies {
	return &replies{w: w, buf: make([]byte, replyHeader, 4<<10)}
}

// begin returns the empty payload of a reply, to append to and pass to end.
func (r *replies) begin() []byte { return r.buf[:replyHeader] }

// end sends a reply whose payload was appended to what begin returned.
func (r *replies) end(b []byte) error {
	binary.LittleEndian.PutUint32(b, uint32(len(b)-replyHeader))
	_, err := r.w.Write(b)
	if cap(b) > cap(r.buf) && cap(b) <= 2*maxFrame {
		r.buf = b[:replyHeader]
	}
	return err
}

func (r *replies) send(payload []byte) error {
	return r.end(append(r.begin(), payload...))
}

// file answers a file call.
func (r *replies) file(s *vfs.Server, request []byte) error {
	b, err := s.Call(r.begin(), request)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrProtocol, err)
	}
	return r.end(b)
}
