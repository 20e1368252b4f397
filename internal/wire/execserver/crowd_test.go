package execserver_test

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/servertest"
	"github.com/spool-run/spool/internal/skiptest"
)

// crowd is a number of connections that send requests and read nothing.
func crowd(t testing.TB, url string, n int, run spool.RunID) {
	t.Helper()
	addr := strings.TrimPrefix(url, "ws://")
	dialer := net.Dialer{Timeout: patience}
	var wg sync.WaitGroup
	next := make(chan int, n)
	for i := range n {
		next <- i
	}
	close(next)
	var request bytes.Buffer
	frame := func(format string, args ...any) { request.Write(textFrame(fmt.Appendf(nil, format, args...))) }
	frame(`{"id":0,"method":"initialize","params":{"clientName":"crowd"}}`)
	frame(`{"method":"initialized"}`)
	frame(`{"id":1,"method":"run/follow","params":{"follow":1,"run":%q,"window_bytes":67108864}}`, run)
	for id := range 20 {
		frame(`{"id":%d,"method":"run/read","params":{"run":%q,"max_bytes":8388608}}`, id+2, run)
	}
	for range 8 {
		wg.Go(func() {
			for range next {
				c, err := dialer.DialContext(t.Context(), "tcp", addr)
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(func() { _ = c.Close() })
				_ = c.(*net.TCPConn).SetReadBuffer(4 << 10)
				fmt.Fprintf(c, "GET / HTTP/1.1\r\nHost: %s\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"+
					"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n", addr)
				if _, err := c.Write(request.Bytes()); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// TestCrowdThatNeverReads has 100 connections ask for much and read nothing.
// The memory of the real server stays bounded, and another client notices
// little.
func TestCrowdThatNeverReads(t *testing.T) {
	// Without bounds the server would hold 16 MiB for each connection.
	const connections, limit = 100, 512 << 20
	s := servertest.Start(t, t.TempDir(), "--stalled-for", "10m")
	p, _ := session(t, s.URL)
	const size = 8 << 20
	run, small := bigRun(t, p, size), bigRun(t, p, 100)
	measure := func() (p50, p99 time.Duration) {
		var times []time.Duration
		for range 100 {
			begin := time.Now()
			p.mustCall(t, "run/read", map[string]any{"run": small, "max_bytes": 4096}, &struct{}{})
			times = append(times, time.Since(begin))
		}
		slices.Sort(times)
		return times[len(times)/2], times[len(times)*99/100]
	}
	measure() // warm
	quiet50, quiet99 := measure()
	quiet := rss(t, s.Pid)
	crowd(t, s.URL, connections, run)
	storm50, storm99 := measure() // while the requests of the crowd are handled
	crowd50, crowd99 := measure()
	peak := rss(t, s.Pid)
	t.Logf("quiet: p50 %v, p99 %v, %d MiB; while %d connections that do not read begin: p50 %v, p99 %v; beside them: p50 %v, p99 %v, %d MiB",
		quiet50, quiet99, quiet>>20, connections, storm50, storm99, crowd50, crowd99, peak>>20)
	if peak > limit {
		t.Errorf("the server takes %d MiB", peak>>20)
	}
	// With room for a busy machine: the connections of the crowd are closed after
	// 10 minutes.
	if crowd50 > 20*quiet50+2*time.Second || crowd99 > 20*quiet99+20*time.Second {
		t.Errorf("p50 went from %v to %v, p99 from %v to %v", quiet50, crowd50, quiet99, crowd99)
	}
	if n, _ := readAll(t, p, run); n != size {
		t.Errorf("read %d bytes", n)
	}
}

// TestMessagesThatNeverEnd has 40 connections begin a message of 32 MiB and
// send only half of it. The memory of the real server stays bounded. Small
// requests of another client are served meanwhile, and a large one of a client
// that connects again once the server has closed the others.
func TestMessagesThatNeverEnd(t *testing.T) {
	const connections, size, limit = 40, 32 << 20, 512 << 20 // less than half of what they begin
	s := servertest.Start(t, t.TempDir(), "--stalled-for", "1s")
	p, _ := session(t, s.URL)
	header := textFrame(make([]byte, size))[:14]
	half := bytes.Repeat([]byte("x"), size/2)
	var wg sync.WaitGroup
	begun := make(chan struct{}, connections)
	for range connections {
		c := dialRaw(t, s.URL)
		c.initialize(t)
		wg.Go(func() {
			_, err := c.Write(header)
			begun <- struct{}{}
			if err == nil {
				_, _ = c.Write(half) // the server does not read all of it
			}
		})
	}
	for range connections {
		<-begun
	}
	for range 20 {
		p.mustCall(t, "environment/status", nil, nil)
	}
	name := filepath.Join(t.TempDir(), "file")
	write := encode(t, 1, "fs/writeFile", map[string]any{"path": "file://" + name, "dataBase64": strings.Repeat("AAAA", 1<<20)})
	for { // until the server does not close this connection with the others
		q, _ := session(t, s.URL)
		if q.conn.Write(t.Context(), websocket.MessageText, []byte(write)) != nil {
			continue
		}
		select {
		case <-q.answers:
		case <-q.done:
			continue
		}
		break
	}
	if fi, err := os.Stat(name); err != nil || fi.Size() != 3<<20 {
		t.Errorf("the file: %v, %v", fi, err)
	}
	if peak := rss(t, s.Pid); peak > limit {
		t.Errorf("the server takes %d MiB", peak>>20)
	} else {
		t.Logf("the server takes %d MiB", peak>>20)
	}
	if err := s.Stop(); err != nil {
		t.Error(err)
	}
	wg.Wait()
}

// rss returns the most memory that a process has used.
func rss(t *testing.T, pid int) int64 {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("/proc", fmt.Sprint(pid), "status"))
	if err != nil {
		skiptest.Missing(t, "needs /proc")
	}
	var kib int64
	for line := range strings.Lines(string(b)) {
		if _, err := fmt.Sscanf(line, "VmHWM: %d kB", &kib); err == nil {
			return kib << 10
		}
	}
	t.Fatal("no VmHWM")
	return 0
}
