package spool

import "strconv"

// Ledger is what a run used from its start to its end, beside its times and its
// output, which [Info] has anyway. It is written with the end of the log.
//
// Processes and Tokens are nil if they are not known. The other values are known
// if there is a ledger: nothing means none. Runs that were lost with the process
// that kept them have no ledger, nor have those of versions that wrote none.
type Ledger struct {
	Processes *ProcessUse `json:"processes,omitempty"`
	// InputBytes is the input that the run accepted: standard input, and
	// cells, prompts and answers in their JSON form.
	InputBytes int64     `json:"input_bytes,omitempty"`
	Turns      int       `json:"turns,omitempty"`
	Tokens     *TokenUse `json:"tokens,omitempty"`
	// Limits are the codes of the limits that the run met, each once, in the
	// order in which it met them first. A turn met those that begin with
	// "turn_".
	Limits []string `json:"limits,omitempty"`
}

// ProcessUse is what the processes of a run used: of a process, those of a kernel
// and an agent one after the other. A descendant counts if the process that
// started it, and so on, waited for its end. Of a sandbox, it is what its
// interpreters used.
type ProcessUse struct {
	UserUs   int64 `json:"user_us"`   // processor time in programs, in microseconds
	SystemUs int64 `json:"system_us"` // processor time in the kernel for them
	// PeakMemory is the most memory that one process held. It is zero if that
	// is not known: Linux does not tell a process that used less than the one
	// that started it.
	PeakMemory int64 `json:"peak_memory_bytes,omitempty"`
}

// TokenUse is what the turns of an agent's run used, as far as the agent said.
// Input counts all tokens given to the model and Output all that it returned; the
// other counts are parts of these.
type TokenUse struct {
	Input      int64 `json:"input"`
	CacheRead  int64 `json:"cache_read,omitempty"`
	CacheWrite int64 `json:"cache_write,omitempty"`
	Output     int64 `json:"output"`
	Reasoning  int64 `json:"reasoning,omitempty"`
	// CostUSD is the cost that the agent reports; zero if it does not.
	CostUSD float64 `json:"cost_usd,omitempty"`
	Steps   int     `json:"steps,omitempty"` // requests to the model
}

// appendJSON appends the JSON form. It is written by hand because every run has
// one.
func (l *Ledger) appendJSON(dst []byte) []byte {
	at := len(dst)
	if p := l.Processes; p != nil {
		dst = append(dst, `,"processes":{"user_us":`...)
		dst = strconv.AppendInt(dst, p.UserUs, 10)
		dst = append(dst, `,"system_us":`...)
		dst = strconv.AppendInt(dst, p.SystemUs, 10)
		dst = append(appendInt(dst, `,"peak_memory_bytes":`, p.PeakMemory), '}')
	}
	dst = appendInt(dst, `,"input_bytes":`, l.InputBytes)
	dst = appendInt(dst, `,"turns":`, int64(l.Turns))
	if t := l.Tokens; t != nil {
		dst = append(dst, `,"tokens":{"input":`...)
		dst = strconv.AppendInt(dst, t.Input, 10)
		dst = appendInt(dst, `,"cache_read":`, t.CacheRead)
		dst = appendInt(dst, `,"cache_write":`, t.CacheWrite)
		dst = append(dst, `,"output":`...)
		dst = strconv.AppendInt(dst, t.Output, 10)
		dst = appendInt(dst, `,"reasoning":`, t.Reasoning)
		if t.CostUSD != 0 {
			dst = append(dst, `,"cost_usd":`...)
			dst = strconv.AppendFloat(dst, t.CostUSD, 'g', -1, 64)
		}
		dst = append(appendInt(dst, `,"steps":`, int64(t.Steps)), '}')
	}
	if len(l.Limits) > 0 {
		dst = append(dst, `,"limits":`...)
		sep := byte('[')
		for _, code := range l.Limits {
			dst = appendString(append(dst, sep), code)
			sep = ','
		}
		dst = append(dst, ']')
	}
	if len(dst) == at {
		return append(dst, `{}`...)
	}
	dst[at] = '{' // in place of the first comma
	return append(dst, '}')
}

// appendInt appends a member that is left out when it is zero.
func appendInt(dst []byte, name string, n int64) []byte {
	if n == 0 {
		return dst
	}
	return strconv.AppendInt(append(dst, name...), n, 10)
}
