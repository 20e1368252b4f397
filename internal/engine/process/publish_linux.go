package process

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/meter"
)

// publish logs output, within the limit. If given, b is the log's from now on.
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
			_ = p.s.kill() // leaves a notice if it failed
		}
	}
}

// sinkRetains reports whether the log holds on to the bytes of an event that large.
func (p *pump) sinkRetains(size int) bool {
	f, ok := p.out.(engine.Forgetful)
	return !ok || f.Keeps(size)
}

// block stops reading, so that the writers block. The end of the streams is
// still seen.
func (p *pump) block() {
	p.blocked = true
	p.meter.Exceed()
	for i, st := range p.streams {
		if st.fd >= 0 {
			p.reactor.Change(st.fd, i, 0)
		}
	}
	p.notice(NoticeOutputLimit, p.meter.Text("run"))
}

// flush logs the output that was held back, once the streams have ended.
func (p *pump) flush() { p.meter.Flush(p.append) }

// appendNotices logs what others left for the log.
func (p *pump) appendNotices() {
	for _, n := range p.requests.notices {
		p.notice(n.Code, n.Text)
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

// append adds to the log. A log that takes no more ends the run.
func (p *pump) append(e spool.Event) {
	if p.logClosed {
		return
	}
	if _, err := p.out.Append(e); err != nil {
		p.logClosed = true
		_ = p.s.kill() // there is no log to say that it failed
	}
}
