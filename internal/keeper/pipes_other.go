//go:build !linux

package keeper

import (
	"io"
	"net"
)

func offerPipes(socket net.Conn) (io.ReadWriteCloser, error) { return socket, nil }

func takePipes(socket net.Conn) (io.ReadWriteCloser, error) { return socket, nil }
