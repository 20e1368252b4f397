package rpc

import (
	"bufio"
	"net"
	"net/http"
)

// frameHijacker gives the websocket package frames for its connection.
type frameHijacker struct {
	http.ResponseWriter
	frames *Frames
}

func (h *frameHijacker) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, rw, err := http.NewResponseController(h.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	h.frames = NewFrames(plainConn{c})
	return h.frames, bufio.NewReadWriter(rw.Reader, bufio.NewWriterSize(h.frames, ControlBytes)), nil
}
