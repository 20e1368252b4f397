// Package zmtp has the sockets of ZeroMQ that a Jupyter kernel binds: ROUTER, PUB and
// REP, over version 3 of the ZeroMQ Message Transport Protocol without encryption.
//
// It differs from libzmq where that loses messages: a slow peer slows down its sender
// instead of missing messages, and what is sent to a peer that is away waits for it.
package zmtp

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"
)

// Type is the type of a socket.
type Type string

// The types of socket.
const (
	Router Type = "ROUTER"
	Pub    Type = "PUB"
	Rep    Type = "REP"
)

// Message is the frames of a message.
type Message [][]byte

// Limits of a socket.
const (
	// MaxMessage is the size of the largest message that a peer may send.
	MaxMessage = 64 << 20
	// maxFrames is how many frames a message may have.
	maxFrames = 1024
	// maxCommand is the size of the largest command.
	maxCommand = 64 << 10
)

// readAhead is the size of the largest frame for which there is memory before it came.
const readAhead = 64 << 10

// Flags of a frame.
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

var errTooLarge = fmt.Errorf("a message has more than %d bytes or %d frames", MaxMessage, maxFrames)

// greetingSize is the size of what both peers send first.
const greetingSize = 64

// greeting returns a greeting of version 3.0 with the mechanism NULL.
func greeting() []byte {
	g := make([]byte, greetingSize)
	g[0], g[9], g[10] = 0xff, 0x7f, 3
	copy(g[12:], "NULL")
	return g
}

// checkGreeting refuses a peer that speaks another version or mechanism.
func checkGreeting(g []byte) error {
	switch {
	case g[0] != 0xff || g[9]&1 == 0 || g[10] < 3:
		return errors.New("the peer does not speak ZMTP 3")
	case string(trimZeros(g[12:32])) != "NULL":
		return fmt.Errorf("the peer wants the mechanism %q", trimZeros(g[12:32]))
	}
	return nil
}

func trimZeros(b []byte) []byte {
	if i := slices.Index(b, 0); i >= 0 {
		return b[:i]
	}
	return b
}

// frame is one frame as it was read.
type frame struct {
	body    []byte
	more    bool
	command bool
}

// readFrame reads a frame of at most limit bytes.
func readFrame(r io.Reader, limit int) (frame, error) {
	var head [9]byte
	if _, err := io.ReadFull(r, head[:2]); err != nil {
		return frame{}, err
	}
	flags, size := head[0], uint64(head[1])
	if flags&flagLong != 0 {
		if _, err := io.ReadFull(r, head[2:9]); err != nil {
			return frame{}, err
		}
		size = binary.BigEndian.Uint64(head[1:9])
	}
	f := frame{more: flags&flagMore != 0, command: flags&flagCommand != 0}
	if f.command {
		limit = maxCommand
	}
	if size > uint64(max(limit, 0)) {
		return frame{}, errTooLarge
	}
	if size <= readAhead {
		f.body = make([]byte, size)
		_, err := io.ReadFull(r, f.body)
		return f, err
	}
	var b bytes.Buffer // memory for what came, not for what was announced
	_, err := io.CopyN(&b, r, int64(size))
	f.body = b.Bytes()
	return f, err
}

// appendFrame appends a frame.
func appendFrame(b []byte, flags byte, body []byte) []byte {
	if len(body) > 255 {
		b = append(b, flags|flagLong)
		b = binary.BigEndian.AppendUint64(b, uint64(len(body)))
	} else {
		b = append(b, flags, byte(len(body)))
	}
	return append(b, body...)
}

// encode returns a message as it is on the wire.
func encode(m Message) []byte {
	size := 0
	for _, f := range m {
		size += len(f) + 9
	}
	b := make([]byte, 0, size)
	for i, f := range m {
		var flags byte
		if i < len(m)-1 {
			flags = flagMore
		}
		b = appendFrame(b, flags, f)
	}
	return b
}

// command returns a command as it is on the wire.
func command(name string, data []byte) []byte {
	body := append([]byte{byte(len(name))}, name...)
	return appendFrame(nil, flagCommand, append(body, data...))
}

// ready returns the command that says what a socket is.
func ready(t Type) []byte {
	const property = "Socket-Type"
	data := append([]byte{byte(len(property))}, property...)
	data = binary.BigEndian.AppendUint32(data, uint32(len(t)))
	return command("READY", append(data, t...))
}

// parseCommand returns the name and the data of a command.
func parseCommand(body []byte) (name string, data []byte, err error) {
	if len(body) == 0 || len(body) < 1+int(body[0]) {
		return "", nil, errors.New("a command without a name")
	}
	n := 1 + int(body[0])
	return string(body[1:n]), body[n:], nil
}

// identity returns the name that a peer gives itself in its READY command.
func identity(data []byte) (string, error) {
	for len(data) > 0 {
		n := 1 + int(data[0])
		if len(data) < n+4 {
			return "", errors.New("a property is cut off")
		}
		name := string(data[1:n])
		size := binary.BigEndian.Uint32(data[n:])
		data = data[n+4:]
		if uint64(size) > uint64(len(data)) {
			return "", errors.New("a property is cut off")
		}
		if name == "Identity" {
			return string(data[:size]), nil
		}
		data = data[size:]
	}
	return "", nil
}
