package keeper

import (
	"context"
	"encoding/json"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/wire/runproto"
)

var _ spool.Inspector = (*Backend)(nil)

// Inspect implements [spool.Inspector].
func (b *Backend) Inspect(ctx context.Context, id spool.RunID, question json.RawMessage) (json.RawMessage, error) {
	var answer json.RawMessage
	err := b.callOwner(ctx, id, methodInspect, runproto.InspectParams{Run: id, Question: question}, &answer)
	return answer, err
}
