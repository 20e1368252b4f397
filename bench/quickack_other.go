//go:build !linux

package main

import "errors"

func setQuickAck(int) error {
	return errors.New("quick acknowledgements are not available on this platform")
}
