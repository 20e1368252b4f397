package record

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"time"

	"github.com/spool-run/spool"
)

// Start is a request to a keeper to start a run.
type Start struct {
	Spec   spool.Spec
	Update bool // send the first update of the run without being asked
	Closed bool // answer once the run is closed
}

// The flags of a start.
const (
	startUpdate = 1 << iota
	startStdin
	startTTY
	startLineBuffered
	startClosed
)

// AppendStart appends the binary form of a start.
func AppendStart(dst []byte, start *Start) ([]byte, error) {
	p := &start.Spec
	var flags uint64
	if start.Update {
		flags |= startUpdate
	}
	if p.Stdin {
		flags |= startStdin
	}
	if p.TTY != nil {
		flags |= startTTY
	}
	if p.LineBuffered {
		flags |= startLineBuffered
	}
	if start.Closed {
		flags |= startClosed
	}
	dst = binary.AppendUvarint(dst, flags)
	if p.TTY != nil {
		dst = binary.AppendUvarint(dst, uint64(p.TTY.Rows))
		dst = binary.AppendUvarint(dst, uint64(p.TTY.Cols))
	}
	for _, s := range []string{string(p.ID), p.Name, p.Engine, p.Arg0, p.Cwd} {
		dst = appendText(dst, s)
	}
	dst = appendTexts(dst, p.Argv)
	dst = appendMap(dst, p.Labels)
	dst = appendMap(dst, p.Env)
	l := &p.Limits
	for _, n := range []int64{int64(l.Wall), int64(l.Idle), int64(l.Grace), l.OutputBytes, int64(l.Pids)} {
		dst = binary.AppendVarint(dst, n)
	}
	dst = appendText(dst, l.OutputPolicy)
	dst = appendText(dst, p.Config)
	var policy []byte
	if p.EnvPolicy != nil { // rare
		var err error
		if policy, err = json.Marshal(p.EnvPolicy); err != nil {
			return nil, fmt.Errorf("encode start: %w", err)
		}
	}
	dst = appendText(dst, policy)
	dst = appendIsolation(dst, p.Isolation)
	if l.MemoryBytes != 0 || l.CPUs != 0 || len(p.Notify) > 0 || p.Workspace != nil || l.OpenFiles != 0 { // rare
		dst = binary.AppendVarint(dst, l.MemoryBytes)
		dst = binary.AppendUvarint(dst, math.Float64bits(l.CPUs))
		dst = appendTexts(dst, p.Notify)
	}
	switch {
	case p.Workspace != nil:
		dst = appendWorkspace(dst, p.Workspace)
	case l.OpenFiles != 0:
		dst = appendText(dst, "")
	}
	if l.OpenFiles != 0 {
		dst = binary.AppendVarint(dst, int64(l.OpenFiles))
	}
	return dst, nil
}

// DecodeStart is the inverse of [AppendStart]. What a later version adds comes
// at the end and is ignored here.
func DecodeStart(b []byte) (start Start, err error) {
	m := message{b: b}
	p := &start.Spec
	flags := m.uint()
	start.Update, p.Stdin = flags&startUpdate != 0, flags&startStdin != 0
	p.LineBuffered, start.Closed = flags&startLineBuffered != 0, flags&startClosed != 0
	if flags&startTTY != 0 {
		p.TTY = &spool.Size{Rows: uint16(m.uint()), Cols: uint16(m.uint())}
	}
	p.ID, p.Name, p.Engine, p.Arg0, p.Cwd = spool.RunID(m.text()), m.text(), m.text(), m.text(), m.text()
	p.Argv = m.texts()
	p.Labels = m.textMap()
	p.Env = m.textMap()
	l := &p.Limits
	l.Wall, l.Idle, l.Grace = time.Duration(m.int()), time.Duration(m.int()), time.Duration(m.int())
	l.OutputBytes, l.Pids = m.int(), int(m.int())
	l.OutputPolicy = m.text()
	if config := m.bytes(); len(config) > 0 {
		p.Config = config
	}
	if policy := m.bytes(); len(policy) > 0 {
		p.EnvPolicy = new(spool.EnvPolicy)
		if err := json.Unmarshal(policy, p.EnvPolicy); err != nil {
			return Start{}, fmt.Errorf("decode start: %w", err)
		}
	}
	p.Isolation = m.isolation()
	if m.err == nil && len(m.b) > 0 {
		l.MemoryBytes, l.CPUs = m.int(), math.Float64frombits(m.uint())
		p.Notify = m.texts()
	}
	p.Workspace = m.workspace()
	if m.err == nil && len(m.b) > 0 {
		l.OpenFiles = int(m.int())
	}
	if m.err != nil {
		return Start{}, fmt.Errorf("decode start: %w", m.err)
	}
	return start, nil
}
