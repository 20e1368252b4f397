package access

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spool-run/spool"
)

// Send implements [spool.Backend].
func (b *backend) Send(ctx context.Context, id spool.RunID, in spool.Input) (spool.Receipt, error) {
	e := Entry{Act: ActInput, Run: id, What: string(in.Kind), Bytes: int64(len(in.Bytes) + len(in.Data))}
	scope := Input
	if in.Kind == spool.InputAnswer {
		scope = Answer
		e.Act, e.Bytes = ActAnswer, 0
		var a spool.Answer
		if json.Unmarshal(in.Data, &a) == nil {
			e.Ask = a.Ask
			if !b.subject.IsOwner() {
				a.By = b.subject.Name // the subject is who answers, whatever the client says
				if data, err := json.Marshal(a); err == nil {
					in.Data = data
				}
			}
		}
	}
	info, err := b.enter(ctx, e.Act, scope, id)
	if err == nil {
		err = b.checkChange(&info, e.Act)
	}
	if err == nil && (in.Kind == spool.InputCell || in.Kind == spool.InputPrompt) {
		if err = b.checkTurn(ctx); err != nil {
			err = b.deny(e.Act, id, err)
		}
	}
	if err != nil {
		return spool.Receipt{}, err
	}
	receipt, err := b.inner.Send(ctx, id, in)
	if err != nil || receipt.Repeated {
		return receipt, err
	}
	if in.Kind == spool.InputStdin {
		b.noteStdin(e)
	} else {
		b.note(e)
	}
	return receipt, nil
}

// noteStdin writes that the subject types to a run to the audit log once. How much
// it was is written at the end of the connection.
func (b *backend) noteStdin(e Entry) {
	if b.guard.audit == nil {
		return
	}
	b.mu.Lock()
	bytes, known := b.typed[e.Run]
	full := !known && len(b.typed) >= maxNoted
	b.mu.Unlock()
	if full {
		b.noteTyped()
	}
	b.mu.Lock()
	b.typed[e.Run] = bytes + e.Bytes
	b.mu.Unlock()
	if !known {
		e.Bytes = 0
		b.note(e)
	}
}

// noteTyped writes how much was typed to each run to the audit log.
func (b *backend) noteTyped() {
	b.mu.Lock()
	typed := b.typed
	b.typed = make(map[spool.RunID]int64)
	b.mu.Unlock()
	for id, n := range typed {
		b.note(Entry{Act: ActInput, Run: id, What: string(spool.InputStdin), Bytes: n})
	}
}

// checkChange checks that a run may be changed: the audit log never by a client,
// and others only if the change can be written to the audit log.
func (b *backend) checkChange(info *spool.Info, act string) error {
	if info.Engine == AuditEngine {
		return b.deny(act, info.ID, fmt.Errorf("run %s: %w: clients cannot change the audit log", info.ID, spool.ErrDenied))
	}
	return b.guard.audit.broken()
}

// Control implements [spool.Backend].
func (b *backend) Control(ctx context.Context, id spool.RunID, c spool.Control) error {
	info, err := b.enter(ctx, ActControl, Control, id)
	if err == nil {
		err = b.checkChange(&info, ActControl)
	}
	if err != nil {
		return err
	}
	if !b.subject.IsOwner() {
		c.By = b.subject.Name // whatever the client says
	}
	if err := b.inner.Control(ctx, id, c); err != nil {
		return err
	}
	b.note(Entry{Act: ActControl, Run: id, What: string(c.Op)})
	return nil
}
