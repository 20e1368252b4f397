package record

import (
	"encoding/binary"
	"math"

	"github.com/spool-run/spool"
)

// The parts of a ledger that are there. No part means no ledger.
const (
	hasLedger = 1 << iota
	hasProcesses
	hasTokens
)

// appendLedger appends the ledger of a run, which may be nil.
func appendLedger(dst []byte, l *spool.Ledger) []byte {
	if l == nil {
		return binary.AppendUvarint(dst, 0)
	}
	var parts uint64 = hasLedger
	if l.Processes != nil {
		parts |= hasProcesses
	}
	if l.Tokens != nil {
		parts |= hasTokens
	}
	dst = binary.AppendUvarint(dst, parts)
	if p := l.Processes; p != nil {
		dst = appendInts(dst, p.UserUs, p.SystemUs, p.PeakMemory)
	}
	dst = appendInts(dst, l.InputBytes, int64(l.Turns))
	if t := l.Tokens; t != nil {
		dst = appendInts(dst, t.Input, t.CacheRead, t.CacheWrite, t.Output, t.Reasoning, int64(t.Steps))
		dst = binary.AppendUvarint(dst, math.Float64bits(t.CostUSD))
	}
	return appendTexts(dst, l.Limits)
}

func appendInts(dst []byte, ints ...int64) []byte {
	for _, n := range ints {
		dst = binary.AppendVarint(dst, n)
	}
	return dst
}

// ledger is the inverse of appendLedger.
func (m *message) ledger() *spool.Ledger {
	parts := m.uint()
	if parts&hasLedger == 0 {
		return nil
	}
	l := new(spool.Ledger)
	if parts&hasProcesses != 0 {
		l.Processes = &spool.ProcessUse{UserUs: m.int(), SystemUs: m.int(), PeakMemory: m.int()}
	}
	l.InputBytes, l.Turns = m.int(), int(m.int())
	if parts&hasTokens != 0 {
		l.Tokens = &spool.TokenUse{Input: m.int(), CacheRead: m.int(), CacheWrite: m.int(), Output: m.int(), Reasoning: m.int(), Steps: int(m.int())}
		l.Tokens.CostUSD = math.Float64frombits(m.uint())
	}
	l.Limits = m.texts()
	return l
}
