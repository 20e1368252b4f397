package process

import (
	"bytes"
	"encoding/json"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
)

// publish logs output, within the limit. The log may keep b if it is given.
func (p *pump) publish(st *stream, b []byte, given bool) {
	if len(b) == 0 {
		return
	}
	p.output = time.Now()
	p.rate = float64(len(b)) / float64(max(1, p.output.Sub(p.published)))
	p.published = p.output
	p.total += int64(len(b))
	limit := p.s.limits.OutputBytes
	head := limit
	if p.s.limits.OutputPolicy == "truncate" {
		head -= int64(p.tail.Max)
	}
	keep := int(min(int64(len(b)), max(0, head-p.logged)))
	if keep > 0 {
		p.logged += int64(keep)
		out := b[:keep:keep]
		if !given && p.keeps(keep) {
			out = bytes.Clone(out)
		}
		p.append(spool.Event{Kind: spool.KindOutput, Stream: st.name, Bytes: out})
	}
	if keep == len(b) {
		return
	}
	switch rest := b[keep:]; p.s.limits.OutputPolicy {
	case "truncate":
		p.tail.Write(st.name, rest)
		if p.total > limit && !p.limited {
			p.limited = true
			p.notice(NoticeOutputLimit, fmt.Sprintf("the output is longer than %d bytes; of the rest only the last %d are kept", limit, p.tail.Max))
		}
	case "stop":
		p.tail.Drop(st.name, len(rest))
		if !p.limited {
			p.limited = true
			p.notice(NoticeOutputLimit, fmt.Sprintf("the output is longer than %d bytes; the run is ended", limit))
			_ = p.s.kill() // leaves a notice if it failed
		}
	default:
		p.tail.Drop(st.name, len(rest))
	}
}

// keeps reports whether the log holds on to the bytes of an event that large.
func (p *pump) keeps(size int) bool {
	f, ok := p.out.(engine.Forgetful)
	return !ok || f.Keeps(size)
}

// block stops reading, so that the writers block. The end of the streams is
// still seen.
func (p *pump) block() {
	p.blocked, p.limited = true, true
	for i, st := range p.streams {
		if st.fd >= 0 {
			e := unix.EpollEvent{Fd: int32(i)} // hang-ups are always told
			_ = unix.EpollCtl(p.epfd, unix.EPOLL_CTL_MOD, st.fd, &e)
		}
	}
	p.notice(NoticeOutputLimit, fmt.Sprintf("the output has reached %d bytes; it is not read any further", p.s.limits.OutputBytes))
}

// flush logs what was held back, once the streams have ended.
func (p *pump) flush() {
	if len(p.tail.Dropped) > 0 {
		p.event(spool.KindTruncated, spool.Truncation{DroppedBytes: p.tail.Dropped, LimitBytes: p.s.limits.OutputBytes})
	}
	for {
		stream, b := p.tail.Next(tailSize)
		if b == nil {
			break
		}
		p.logged += int64(len(b))
		p.append(spool.Event{Kind: spool.KindOutput, Stream: stream, Bytes: b})
	}
	p.tail.Reset()
}

// notices logs what others left for the log.
func (p *pump) notices() {
	for _, n := range p.req.notices {
		p.notice(n.Code, n.Text)
	}
	p.req.notices = nil
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
	if p.refused {
		return
	}
	if _, err := p.out.Append(e); err != nil {
		p.refused = true
		_ = p.s.kill() // there is no log to say that it failed
	}
}
