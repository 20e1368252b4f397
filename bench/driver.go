package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"time"
)

// measureDriver measures how fast the client itself decodes output. No server
// can look faster than this.
func measureDriver(ctx context.Context, b *bench) error {
	for _, of := range []struct {
		metric string
		size   int
	}{{"driver.8k", 8 << 10}, {"driver.64k", 64 << 10}} {
		chunk := base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0}, of.size))
		raw := fmt.Appendf(nil, `{"method":"process/output","params":{"processId":"bench-1","seq":123456,"stream":"stdout","chunk":"%s"}}`, chunk)
		var m message
		var data []byte
		var err error
		n := 0
		began := time.Now()
		for ; time.Since(began) < 200*time.Millisecond; n += len(data) {
			if err := scanMessage(raw, &m); err != nil {
				return err
			}
			if data, err = m.decodeChunk(data); err != nil {
				return err
			}
		}
		b.add(subjectFloor, of.metric, float64(n)/time.Since(began).Seconds())
	}
	return nil
}
