package talk

import "github.com/spool-run/spool/agent"

// Step counts a request to the model.
func (t *Turn) Step() {
	t.steps++
	t.used.Steps = t.steps
}

// Add counts what a part of the turn used.
func (t *Turn) Add(s agent.Spend) {
	s.Steps = 0
	t.used = Add(t.used, s)
	t.told = true
}

// SetUsed says what the whole turn used until now.
func (t *Turn) SetUsed(s agent.Spend) {
	s.Steps = t.steps
	t.used, t.told = s, true
}

// SetTotal says what the session used until now. The turn's part is the
// difference to what it was at the beginning, if that is known.
func (t *Turn) SetTotal(s agent.Spend) {
	t.total = &s
	if t.Run.BaseKnown {
		t.SetUsed(Sub(s, t.Run.Base))
	}
}

// SetSession says what the session used until now, for agents that tell the
// tokens of a turn but only the total of the money.
func (t *Turn) SetSession(total agent.Spend) {
	t.total = &total
	if t.Run.BaseKnown {
		t.used.CostUSD = max(0, total.CostUSD-t.Run.Base.CostUSD)
	}
}

// SetCost says what the session cost until now.
func (t *Turn) SetCost(total float64) {
	s := agent.Spend{CostUSD: total}
	if t.total != nil {
		s = *t.total
		s.CostUSD = total
	}
	t.SetSession(s)
}

// Context says how full the model's window is.
func (t *Turn) Context(used, size int64) { t.ctxLen = [2]int64{used, size} }

// ContextSize says how large the model's window is at least.
func (t *Turn) ContextSize(size int64) { t.ctxLen[1] = max(t.ctxLen[1], size) }

// Used is what the turn used until now.
func (t *Turn) Used() agent.Spend { return t.used }

// Usage is what is known about the use of the turn, or nil.
func (t *Turn) Usage() *agent.Usage {
	u := &agent.Usage{Session: t.total, ContextUsed: t.ctxLen[0], ContextSize: t.ctxLen[1]}
	if t.told {
		used, run := t.used, Add(t.Run.Spent, t.used)
		run.Steps = t.Run.Spent.Steps + used.Steps
		u.Turn, u.Run = &used, &run
	} else if t.total == nil && t.ctxLen == [2]int64{} {
		return nil
	}
	return u
}

// Add returns the sum of two spends.
func Add(a, b agent.Spend) agent.Spend {
	return agent.Spend{Input: a.Input + b.Input, CacheRead: a.CacheRead + b.CacheRead, CacheWrite: a.CacheWrite + b.CacheWrite,
		Output: a.Output + b.Output, Reasoning: a.Reasoning + b.Reasoning, CostUSD: a.CostUSD + b.CostUSD, Steps: a.Steps + b.Steps}
}

// Sub returns the difference of two spends, never below zero: a session that was
// compacted may count anew.
func Sub(a, b agent.Spend) agent.Spend {
	return agent.Spend{Input: max(0, a.Input-b.Input), CacheRead: max(0, a.CacheRead-b.CacheRead), CacheWrite: max(0, a.CacheWrite-b.CacheWrite),
		Output: max(0, a.Output-b.Output), Reasoning: max(0, a.Reasoning-b.Reasoning), CostUSD: max(0, a.CostUSD-b.CostUSD), Steps: max(0, a.Steps-b.Steps)}
}
