package httpapi

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/access"
)

// adminOperations are for those who look after the server.
func adminOperations() []operation {
	return []operation{
		{method: "GET", pattern: "/v1/audit", name: "getAudit", scope: access.Admin, summary: "Who did what, an entry on each line",
			query: []param{
				{name: "after", kind: numberParam, max: math.MaxInt64, cursor: true, doc: "Cursor: the seq of the last entry that the client has"},
				{name: "follow", kind: flagParam, doc: "Go on until the server ends"},
			}, status: 200, forms: []string{formNDJSON}, problems: []string{"bad_cursor", "unsupported", "too_many_streams"}, serve: (*call).audit},
		{method: "GET", pattern: "/metrics", name: "getMetrics", scope: access.Admin, summary: "Numbers for Prometheus",
			status: 200, forms: []string{"text/plain"}, serve: (*call).metrics},
	}
}

// AuditLine is an entry of the audit log with its number.
type AuditLine struct {
	Seq spool.Seq `json:"seq"`
	access.Entry
}

func (c *call) audit() error {
	log := c.server.audit
	if log == nil {
		return problemf("unsupported", "this server has no audit log; spool serve --audit keeps one")
	}
	follow := c.flag("follow")
	if follow {
		end, err := c.server.streams.begin(c)
		if err != nil {
			return err
		}
		defer end()
	}
	run, q := log.Run(), spool.Query{After: spool.Seq(c.number("after", 0)), MaxBytes: c.server.limits.StreamPage}
	page, err := c.server.backend.Read(c.ctx, run, q)
	if err != nil {
		return err
	}
	c.unbuffered(formNDJSON)
	c.w.WriteHeader(http.StatusOK)
	if c.r.Method == http.MethodHead {
		return nil
	}
	control, last := http.NewResponseController(c.w), page.Info.Last
	for {
		for i := range page.Events {
			e := &page.Events[i]
			var notice spool.Notice
			line := AuditLine{Seq: e.Seq}
			if e.Kind != spool.KindNotice || json.Unmarshal(e.Data, &notice) != nil || json.Unmarshal(notice.Data, &line.Entry) != nil {
				continue
			}
			b, err := json.Marshal(line)
			if err == nil {
				_, err = c.w.Write(append(b, '\n'))
			}
			if err != nil {
				return nil // the client left
			}
		}
		q.After = max(q.After, page.Next)
		if page.End() || !follow && q.After >= last {
			return nil
		}
		if follow {
			q.Wait = c.server.limits.LongPoll
			if err := control.Flush(); err != nil {
				return nil
			}
		}
		if page, err = c.server.backend.Read(c.ctx, run, q); err != nil {
			return nil // as far as it came
		}
	}
}

// counters count what the server did.
type counters struct {
	mu       sync.Mutex
	requests map[string]uint64 // by operation
	problems map[string]uint64 // by code
}

// count adds one to a counter.
func (k *counters) count(in *map[string]uint64, name string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if *in == nil {
		*in = make(map[string]uint64)
	}
	(*in)[name]++
}

func (c *call) metrics() error {
	s := c.server
	var b strings.Builder
	gauge := func(name, help string, value float64) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s gauge\n%s %s\n", name, help, name, name, strconv.FormatFloat(value, 'g', -1, 64))
	}
	byLabel := func(name, help, label string, values map[string]uint64) {
		fmt.Fprintf(&b, "# HELP %s %s\n# TYPE %s counter\n", name, help, name)
		keys := make([]string, 0, len(values))
		for k := range values {
			keys = append(keys, k)
		}
		slices.Sort(keys)
		for _, k := range keys {
			fmt.Fprintf(&b, "%s{%s=%q} %d\n", name, label, k, values[k])
		}
	}
	live := 0
	for _, err := range s.backend.List(c.ctx, spool.Filter{Live: true}) {
		if err == nil {
			live++
		}
	}
	s.streams.mu.Lock()
	open := len(s.streams.open)
	s.streams.mu.Unlock()
	var mem runtime.MemStats
	runtime.ReadMemStats(&mem)
	gauge("spool_runs_live", "Runs that are not closed.", float64(live))
	gauge("spool_streams_open", "Streams that are open.", float64(open))
	gauge("spool_goroutines", "Goroutines of the server.", float64(runtime.NumGoroutine()))
	gauge("spool_memory_bytes", "Memory that the server got from the system.", float64(mem.Sys))
	if s.gauges != nil {
		s.gauges(gauge)
	}
	s.counters.mu.Lock()
	byLabel("spool_requests_total", "Requests by operation.", "operation", s.counters.requests)
	byLabel("spool_problems_total", "Answers that were problems, by code.", "code", s.counters.problems)
	s.counters.mu.Unlock()
	return c.send(http.StatusOK, "text/plain; version=0.0.4; charset=utf-8", []byte(b.String()))
}
