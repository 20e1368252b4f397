package agents

import (
	"github.com/spool-run/spool/agent"
)

// step counts a request to the model.
func (t *turn) step() {
	t.steps++
	t.used.Steps = t.steps
}

// add counts what a part of the turn used.
func (t *turn) add(s agent.Spend) {
	s.Steps = 0
	t.used = sum(t.used, s)
	t.told = true
}

// setUsed says what the whole turn used until now.
func (t *turn) setUsed(s agent.Spend) {
	s.Steps = t.steps
	t.used, t.told = s, true
}

// setTotal says what the session used until now. The turn's part is the
// difference to what it was at the beginning, if somebody knows that.
func (t *turn) setTotal(s agent.Spend) {
	t.total = &s
	if t.run.baseKnown {
		t.setUsed(minus(s, t.run.base))
	}
}

// setSession says what the session used until now, for agents that tell the
// tokens of a turn but only the total of the money.
func (t *turn) setSession(total agent.Spend) {
	t.total = &total
	if t.run.baseKnown {
		t.used.CostUSD = max(0, total.CostUSD-t.run.base.CostUSD)
	}
}

// setCost does so for the money alone.
func (t *turn) setCost(total float64) {
	s := agent.Spend{CostUSD: total}
	if t.total != nil {
		s = *t.total
		s.CostUSD = total
	}
	t.setSession(s)
}

// context says how full the model's window is.
func (t *turn) context(used, size int64) { t.ctxLen = [2]int64{used, size} }

// usage is what is known about it now, or nil.
func (t *turn) usage() *agent.Usage {
	u := &agent.Usage{Session: t.total, ContextUsed: t.ctxLen[0], ContextSize: t.ctxLen[1]}
	if t.told {
		used, run := t.used, sum(t.run.spent, t.used)
		run.Steps = t.run.spent.Steps + used.Steps
		u.Turn, u.Run = &used, &run
	} else if t.total == nil && t.ctxLen == [2]int64{} {
		return nil
	}
	return u
}

func sum(a, b agent.Spend) agent.Spend {
	return agent.Spend{Input: a.Input + b.Input, CacheRead: a.CacheRead + b.CacheRead, CacheWrite: a.CacheWrite + b.CacheWrite,
		Output: a.Output + b.Output, Reasoning: a.Reasoning + b.Reasoning, CostUSD: a.CostUSD + b.CostUSD, Steps: a.Steps + b.Steps}
}

// minus never goes below zero: a session that was compacted may count anew.
func minus(a, b agent.Spend) agent.Spend {
	return agent.Spend{Input: max(0, a.Input-b.Input), CacheRead: max(0, a.CacheRead-b.CacheRead), CacheWrite: max(0, a.CacheWrite-b.CacheWrite),
		Output: max(0, a.Output-b.Output), Reasoning: max(0, a.Reasoning-b.Reasoning), CostUSD: max(0, a.CostUSD-b.CostUSD), Steps: max(0, a.Steps-b.Steps)}
}
