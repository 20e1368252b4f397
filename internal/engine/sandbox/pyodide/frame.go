package pyodide

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// An interpreter and its host speak in frames over one connection. The
// interpreter's begin with the length of the payload, the operation and a
// flag; the host's replies with the length and an error number. The host only
// ever replies, but for the first frame of a script, which has the form of a
// reply. Numbers are little-endian. runner.mjs has the other side.
const frameHeader = 8

// maxFrame bounds the payload of a frame of an interpreter. The interpreter
// cuts what is longer; one that does not is not ours.
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

	opStat     op = 16 // path → info
	opOpen     op = 17 // flags, path → handle
	opClose    op = 18 // handle
	opRead     op = 19 // handle, count, offset → bytes
	opWrite    op = 20 // handle, offset, bytes → count
	opAppend   op = 21 // handle, bytes → count
	opTruncate op = 22 // handle, size
	opFstat    op = 23 // handle → info
	opReadDir  op = 24 // path → entries
	opMkdir    op = 25 // perm, path
	opUnlink   op = 26 // path
	opRmdir    op = 27 // path
	opRename   op = 28 // from, to
	opSymlink  op = 29 // target, path
	opReadlink op = 30 // path → target
	opChmod    op = 31 // perm, path
	opChtimes  op = 32 // path, times in JSON
	opResize   op = 33 // size, path
	opCreate   op = 34 // perm, path
)

// frame is a request of an interpreter. Its payload is valid until the next
// frame is read.
type frame struct {
	op      op
	flag    byte
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
	fr := frame{op: op(head[4]), flag: head[5]}
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
	return &replies{w: w, buf: make([]byte, frameHeader, 4<<10)}
}

// begin returns the empty payload of a reply, to append to and pass to end.
func (r *replies) begin() []byte { return r.buf[:frameHeader] }

// end sends a reply whose payload was appended to what begin returned.
func (r *replies) end(b []byte, errno uint32) error {
	binary.LittleEndian.PutUint32(b, uint32(len(b)-frameHeader))
	binary.LittleEndian.PutUint32(b[4:], errno)
	_, err := r.w.Write(b)
	if cap(b) > cap(r.buf) && cap(b) <= 2*maxFrame {
		r.buf = b[:frameHeader]
	}
	return err
}

func (r *replies) send(payload []byte, errno uint32) error {
	return r.end(append(r.begin(), payload...), errno)
}
