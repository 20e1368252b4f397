package host

import (
	"bytes"
	"encoding/json"
	"slices"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/engine"
	"github.com/spool-run/spool/internal/limits"
)

// account counts what a run uses while it lives. The lock of the run guards it.
type account struct {
	turns  int
	tokens *spool.TokenUse
	limits []string // never changed in place
}

// count counts an event. The caller holds the lock of the run.
func (a *account) count(e *spool.Event) {
	switch e.Kind {
	case spool.KindInput:
		if beginsTurn(e) {
			a.turns++
		}
	case spool.KindNotice:
		if code := noticeCode(e); slices.Contains(limits.Codes, code) {
			a.met(code)
		}
	case spool.KindDone:
		var done struct {
			Outcome spool.TurnOutcome `json:"outcome"`
			EndedBy string            `json:"ended_by"`
			Usage   struct {
				Run *spool.TokenUse `json:"run"`
			} `json:"usage"`
		}
		if json.Unmarshal(e.Data, &done) != nil {
			return
		}
		for _, by := range []string{string(done.Outcome), done.EndedBy} {
			if slices.Contains(limits.TurnEnds, by) {
				a.met(limits.OfTurn(by))
			}
		}
		if done.Usage.Run != nil {
			a.tokens = done.Usage.Run
		}
	}
}

// noticeCode returns the code of a notice, which engines write first. It does not
// decode the rest, which may be large.
func noticeCode(e *spool.Event) string {
	rest, ok := bytes.CutPrefix(e.Data, []byte(`{"code":"`))
	code, _, closed := bytes.Cut(rest[:min(len(rest), codeRoom)], []byte(`"`))
	if !ok || !closed {
		return ""
	}
	return string(code)
}

// codeRoom is more than the longest code of a limit.
const codeRoom = 64

// uncount takes back an event that the log refused.
func (a *account) uncount(e *spool.Event) {
	if e.Kind == spool.KindInput && beginsTurn(e) {
		a.turns--
	}
}

func (a *account) met(code string) {
	if !slices.Contains(a.limits, code) {
		a.limits = append(slices.Clip(a.limits), code)
	}
}

// processes returns what the processes of the run used, or nil if that is not known.
// The caller does not hold r.mu, which a session may wait for.
func (r *run) processes() *spool.ProcessUse {
	r.mu.Lock()
	s, ok := r.session.(engine.Accountable)
	r.mu.Unlock()
	if !ok {
		return nil
	}
	return s.Used()
}

// settle writes the ledger of a run of this host. What a run used whose host was
// lost is not known. The caller holds r.mu.
func (r *run) settle(used *spool.ProcessUse) {
	if r.input == nil {
		return
	}
	a := &r.account
	r.info.Ledger = &spool.Ledger{
		Processes: used, InputBytes: r.input.sum.Load(), Turns: a.turns, Tokens: a.tokens, Limits: a.limits,
	}
}
