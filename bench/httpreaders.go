package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"
)

// crowdRole makes this program many readers of server-sent events, so that what they
// cost is not counted as the server's.
const crowdRole = "-crowd"

// crowdPlan is what the readers do. It is the first line of their standard input; a line
// "cut" after it cuts all connections at once, and then they come back.
type crowdPlan struct {
	Addr    string   `json:"addr"`
	Token   string   `json:"token"`
	Paths   []string `json:"paths"` // of streams; readers take them in turn
	Readers int      `json:"readers"`
}

// crowdResult is what the readers saw. It is the last line that they print, after one
// "ready" when all are connected.
type crowdResult struct {
	Events int64   `json:"events"`
	P50    float64 `json:"p50"` // seconds from the time of an event to its receipt
	P99    float64 `json:"p99"`
	Lost   int64   `json:"lost"`
	Twice  int64   `json:"twice"`
	Again  float64 `json:"again"` // seconds from the cut until the last reader had a new event
}

// readersCrowd is the readers.
type readersCrowd struct {
	crowdPlan
	connected sync.WaitGroup
	cutAt     atomic.Int64 // in nanoseconds since 1970; zero before the cut
	all       []*crowdReader
}

// crowdReader is one of them.
type crowdReader struct {
	crowd *readersCrowd
	path  string
	mu    sync.Mutex
	conn  net.Conn

	after       uint64
	lost, twice int64
	took        []float64
	again       float64
	err         error
}

// runCrowd runs the readers until all of their runs are closed.
func runCrowd(in io.Reader, out io.Writer) error {
	lines := bufio.NewReaderSize(in, 1<<20)
	plan, err := lines.ReadBytes('\n')
	if err != nil {
		return err
	}
	c := &readersCrowd{}
	if err := json.Unmarshal(plan, &c.crowdPlan); err != nil {
		return err
	}
	c.connected.Add(c.Readers)
	var wg sync.WaitGroup
	dialing := make(chan struct{}, 64)
	for i := range c.Readers {
		r := &crowdReader{crowd: c, path: c.Paths[i%len(c.Paths)]}
		c.all = append(c.all, r)
		wg.Go(func() { r.err = r.run(dialing) })
	}
	c.connected.Wait()
	if _, err := fmt.Fprintln(out, "ready"); err != nil {
		return err
	}
	go func() {
		if line, err := lines.ReadString('\n'); err == nil && line == "cut\n" {
			c.cut()
		}
	}()
	wg.Wait()
	result, err := c.result()
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(result)
}

// cut cuts all connections, without a farewell.
func (c *readersCrowd) cut() {
	c.cutAt.Store(time.Now().UnixNano())
	for _, r := range c.all {
		r.mu.Lock()
		if tcp, ok := r.conn.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
			_ = tcp.Close()
		}
		r.mu.Unlock()
	}
}

func (c *readersCrowd) result() (*crowdResult, error) {
	result := &crowdResult{}
	var took []float64
	for _, r := range c.all {
		if r.err != nil {
			return nil, r.err
		}
		took = append(took, r.took...)
		result.Lost += r.lost
		result.Twice += r.twice
		result.Again = max(result.Again, r.again)
	}
	if result.Events = int64(len(took)); len(took) > 0 {
		slices.Sort(took)
		result.P50, result.P99 = median.of(took), p99.of(took)
	}
	return result, nil
}

// run reads the stream until its run is closed, over as many connections as it takes.
func (r *crowdReader) run(dialing chan struct{}) error {
	greet := sync.OnceFunc(r.crowd.connected.Done)
	defer greet() // also if it fails
	for tries := 0; ; tries++ {
		dialing <- struct{}{}
		conn, err := net.Dial("tcp", r.crowd.Addr)
		<-dialing
		if err == nil {
			r.mu.Lock()
			r.conn = conn
			r.mu.Unlock()
			var over bool
			over, err = r.read(conn, greet)
			_ = conn.Close() // it may be cut
			if over {
				return nil
			}
		}
		if r.crowd.cutAt.Load() == 0 || tries > 100 {
			return fmt.Errorf("a reader at event %d: %w", r.after, err)
		}
	}
}

// read reads one connection. The frames of small events are never divided, so that the
// lines with the sizes of chunks can be passed over.
func (r *crowdReader) read(conn net.Conn, greet func()) (over bool, err error) {
	_, err = fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\nAuthorization: Bearer %s\r\nAccept: text/event-stream\r\nLast-Event-ID: %d\r\n\r\n",
		r.path, r.crowd.Addr, r.crowd.Token, r.after)
	if err != nil {
		return false, err
	}
	lines := bufio.NewReaderSize(conn, 4<<10)
	status, err := lines.ReadString('\n')
	if err != nil {
		return false, err
	}
	if code := status[min(9, len(status)):min(12, len(status))]; code == "204" {
		return true, nil
	} else if code != "200" {
		return false, errors.New(status)
	}
	event := false // the next data is an event of the log
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return false, err
		}
		switch {
		case bytes.HasPrefix(line, []byte("event: info")):
			greet()
		case bytes.HasPrefix(line, []byte("event: end")):
			data, err := lines.ReadSlice('\n')
			return bytes.Contains(data, []byte(`"closed"`)), err
		case bytes.HasPrefix(line, []byte("id: ")):
			seq, err := strconv.ParseUint(string(bytes.TrimSpace(line[4:])), 10, 64)
			if err != nil {
				return false, err
			}
			event = r.take(seq)
		case event && bytes.HasPrefix(line, []byte("data: ")):
			event = false
			if err := r.receive(line); err != nil {
				return false, err
			}
		}
	}
}

// take notes the number of an event. It reports whether it is a new one.
func (r *crowdReader) take(seq uint64) bool {
	if seq <= r.after {
		r.twice++
		return false
	}
	r.lost += int64(seq - r.after - 1)
	r.after = seq
	return true
}

// receive notes how long an event took.
func (r *crowdReader) receive(line []byte) error {
	now := time.Now()
	const member = `"time":"`
	at := bytes.Index(line, []byte(member))
	if at < 0 {
		return fmt.Errorf("an event without a time: %s", line)
	}
	text, _, _ := bytes.Cut(line[at+len(member):], []byte{'"'})
	made, err := time.Parse(time.RFC3339Nano, string(text))
	if err != nil {
		return err
	}
	r.took = append(r.took, now.Sub(made).Seconds())
	if cut := r.crowd.cutAt.Load(); cut != 0 && r.again == 0 && made.UnixNano() > cut {
		r.again = now.Sub(time.Unix(0, cut)).Seconds()
	}
	return nil
}
