package keeper

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spool-run/spool"
)

// startParams are a spec, and what else is asked for with it.
type startParams struct {
	spool.Spec
	News bool // tell what awaiting the first event would
}

// What a start has beside its strings.
const (
	startNews = 1 << iota
	startStdin
	startTTY
)

// append appends the form in which a start is asked for.
func (p *startParams) append(dst []byte) ([]byte, error) {
	var flags uint64
	if p.News {
		flags |= startNews
	}
	if p.Stdin {
		flags |= startStdin
	}
	if p.TTY != nil {
		flags |= startTTY
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
	if p.EnvPolicy != nil { // of few
		var err error
		if policy, err = json.Marshal(p.EnvPolicy); err != nil {
			return nil, fmt.Errorf("encode start: %w", err)
		}
	}
	return appendText(dst, policy), nil
}

// decodeStart is the inverse. What is added to the form comes at its end, and
// is ignored by those who do not know it.
func decodeStart(b []byte) (p startParams, err error) {
	m := message{b: b}
	flags := m.uint()
	p.News, p.Stdin = flags&startNews != 0, flags&startStdin != 0
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
	l.OutputPolicy = spool.OutputPolicy(m.text())
	if config := m.bytes(); len(config) > 0 {
		p.Config = config
	}
	if policy := m.bytes(); len(policy) > 0 {
		p.EnvPolicy = new(spool.EnvPolicy)
		if err := json.Unmarshal(policy, p.EnvPolicy); err != nil {
			return startParams{}, fmt.Errorf("decode start: %w", err)
		}
	}
	if m.err != nil {
		return startParams{}, fmt.Errorf("decode start: %w", m.err)
	}
	return p, nil
}
