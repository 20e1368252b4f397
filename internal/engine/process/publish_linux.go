package process

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/meter"
)

// publish appends output to the log, up to the limit. If given, the log owns b.
func (p *pump) publish(st *stream, b []byte, given bool) {
	if len(b) == 0 {
		return
	}
	p.lastOutput = time.Now()
	p.rate = float64(len(b)) / float64(max(1, p.lastOutput.Sub(p.lastEvent)))
	p.lastEvent = p.lastOutput
	keep, exceeds := p.meter.Add(st.name, b)
	if keep > 0 {
		out := b[:keep:keep]
		if !given && p.sinkRetains(keep) {
			out = bytes.Clone(out)
		}
		p.append(spool.Event{Kind: spool.KindOutput, Stream: st.name, Bytes: out})
	}
	if exceeds {
		p.notice(NoticeOutputLimit, p.meter.Text("run"))
		if p.s.limits.OutputPolicy == meter.Stop {
			_ = p.s.kill() // adds a notice if it fails
		}
	}
}

// sinkRetains reports whether the log retains the bytes of an event of that size.
func (p *pump) sinkRetains(size int) bool {
	f, ok := p.out.(engine.Forgetful)
	return !ok || f.Keeps(size)
}

// block stops reading, so that the writers block. The end of the streams is
// still seen.
func (p *pump) block() {
	p.blocked = true
	p.meter.Exceed()
	for _, st := range p.streams {
		if st.fd >= 0 {
			p.reactor.Change(st.fd, 0)
		}
	}
	p.notice(NoticeOutputLimit, p.meter.Text("run"))
}

// flush logs the output that was held back, once the streams have ended.
func (p *pump) flush() { p.meter.Flush(p.append) }

// appendNotices appends the notices of other goroutines.
func (p *pump) appendNotices() {
	for _, n := range p.requests.notices {
		p.event(spool.KindNotice, n)
	}
	p.requests.notices = nil
}

func (p *pump) notice(code, text string) {
	p.event(spool.KindNotice, spool.Notice{Code: code, Text: text})
}

func (p *pump) event(kind spool.Kind, data any) {
	b, err := json.Marshal(data)
	if err != nil { // plain structs always encode
		b = nil
	}
	p.append(spool.Event{Kind: kind, Data: b})
}

// append appends to the log. If the log is closed, it kills the run.
func (p *pump) append(e spool.Event) {
	if p.logClosed {
		return
	}
	if _, err := p.out.Append(e); err != nil {
		p.logClosed = true
		_ = p.s.kill() // an error cannot be logged
	}
}
