//go:build !linux

package execserver

import "net"

func limitSendQueue(net.Conn) {}

func waitWritable(net.Conn) {}
