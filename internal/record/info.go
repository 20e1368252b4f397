package record

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/spool-run/spool"
)

// AppendInfo appends the binary form of a description.
func AppendInfo(dst []byte, i *spool.Info) []byte {
	for _, s := range []string{string(i.ID), i.Name, i.Engine, i.Cwd, i.Owner} {
		dst = appendText(dst, s)
	}
	dst = appendMap(dst, i.Labels)
	dst = appendTexts(dst, i.Argv)
	var tty uint64
	if i.TTY {
		tty = 1
	}
	dst = binary.AppendUvarint(dst, tty)
	dst = binary.AppendVarint(dst, int64(i.Pid))
	dst = appendTime(dst, i.Created)
	dst = appendText(dst, i.Details)
	dst = appendIsolation(appendProgress(dst, i), i.Isolation)
	if i.Workspace != nil {
		dst = appendWorkspace(dst, i.Workspace)
	} else if i.Node != "" || i.Mirror != nil {
		dst = appendText(dst, "")
	}
	if i.Node != "" || i.Mirror != nil {
		dst = appendText(dst, i.Node)
	}
	if m := i.Mirror; m != nil {
		dst = binary.AppendUvarint(appendText(dst, m.Node), uint64(m.Last))
		dst = binary.AppendVarint(dst, m.LagMs)
	}
	return dst
}

// appendWorkspace appends the JSON form.
func appendWorkspace(dst []byte, w *spool.Workspace) []byte {
	b, err := json.Marshal(w)
	if err != nil { // strings and numbers always encode
		b = nil
	}
	return appendText(dst, b)
}

// workspace reads a workspace, which older messages do not have at their end.
func (m *message) workspace() *spool.Workspace {
	if m.err != nil || len(m.b) == 0 {
		return nil
	}
	b := m.bytes()
	if len(b) == 0 {
		return nil
	}
	w := new(spool.Workspace)
	if err := json.Unmarshal(b, w); err != nil {
		m.b, m.err = nil, fmt.Errorf("workspace: %w", err)
	}
	return w
}

// appendIsolation appends the JSON form, empty for none: isolation is rare.
func appendIsolation(dst []byte, i *spool.Isolation) []byte {
	if i == nil {
		return appendText(dst, "")
	}
	b, err := json.Marshal(i)
	if err != nil { // strings always encode
		b = nil
	}
	return appendText(dst, b)
}

func (m *message) isolation() *spool.Isolation {
	b := m.bytes()
	if len(b) == 0 {
		return nil
	}
	i := new(spool.Isolation)
	if err := json.Unmarshal(b, i); err != nil {
		m.b, m.err = nil, fmt.Errorf("isolation: %w", err)
	}
	return i
}

// DecodeInfo is the inverse of [AppendInfo].
func DecodeInfo(b []byte) (i spool.Info, err error) {
	m := message{b: b}
	i.ID, i.Name, i.Engine, i.Cwd, i.Owner = spool.RunID(m.text()), m.text(), m.text(), m.text(), m.text()
	i.Labels = m.textMap()
	i.Argv = m.texts()
	i.TTY = m.uint() != 0
	i.Pid = int(m.int())
	i.Created = m.time()
	if details := m.text(); details != "" {
		i.Details = json.RawMessage(details)
	}
	m.progress(&i)
	i.Isolation = m.isolation()
	i.Workspace = m.workspace()
	if m.err == nil && len(m.b) > 0 { // older messages end before
		i.Node = m.text()
	}
	if m.err == nil && len(m.b) > 0 {
		i.Mirror = &spool.Mirror{Node: m.text(), Last: spool.Seq(m.uint()), LagMs: m.int()}
	}
	if m.err != nil {
		return spool.Info{}, fmt.Errorf("decode description: %w", m.err)
	}
	return i, nil
}

// appendProgress appends what changes while a run lives.
func appendProgress(dst []byte, i *spool.Info) []byte {
	dst = binary.AppendUvarint(dst, uint64(i.Last))
	dst = binary.AppendUvarint(dst, uint64(i.Bytes))
	dst = appendText(dst, i.State)
	dst = appendTime(dst, i.Ended)
	var o spool.Outcome
	if i.Outcome != nil {
		o = *i.Outcome
	}
	dst = appendText(dst, o.Kind) // empty for none
	dst = binary.AppendVarint(dst, int64(o.Code))
	dst = appendText(appendText(dst, o.Signal), o.Reason)
	dst = appendLedger(appendText(appendText(dst, i.Title), i.TurnOutcome), i.Ledger)
	for _, n := range []uint16{i.Size.Rows, i.Size.Cols, i.FirstSize.Rows, i.FirstSize.Cols} {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	dst = binary.AppendUvarint(dst, uint64(i.Turn))
	if i.Asks == nil {
		return binary.AppendUvarint(dst, 0)
	}
	dst = binary.AppendUvarint(dst, uint64(len(i.Asks.Open))+1)
	for _, seq := range i.Asks.Open {
		dst = binary.AppendUvarint(dst, uint64(seq))
	}
	return binary.AppendVarint(dst, int64(i.Asks.Count))
}

func (m *message) size() spool.Size {
	return spool.Size{Rows: uint16(m.uint()), Cols: uint16(m.uint())}
}

// state reads a state. Most are known, and need no memory.
func (m *message) state() spool.State {
	b := m.bytes()
	for _, known := range [...]spool.State{spool.StateRunning, spool.StateExited, spool.StateClosed} {
		if string(b) == string(known) {
			return known
		}
	}
	return spool.State(b)
}

func (m *message) progress(i *spool.Info) {
	i.Last, i.Bytes = spool.Seq(m.uint()), int64(m.uint())
	i.State = m.state()
	i.Ended = m.time()
	o := spool.Outcome{Kind: spool.OutcomeKind(m.text()), Code: int(m.int()), Signal: m.text(), Reason: m.text()}
	if o.Kind != "" {
		outcome := o // most have none, and take no memory
		i.Outcome = &outcome
	}
	i.Title, i.TurnOutcome = m.text(), spool.TurnOutcome(m.text())
	i.Ledger = m.ledger()
	i.Size, i.FirstSize = m.size(), m.size()
	i.Turn = spool.Seq(m.uint())
	if n := m.count(); n > 0 {
		i.Asks = &spool.OpenAsks{Open: make([]spool.Seq, 0, min(n-1, maxRoom))}
		for range n - 1 {
			i.Asks.Open = append(i.Asks.Open, spool.Seq(m.uint()))
		}
		i.Asks.Count = int(m.int())
	}
}
