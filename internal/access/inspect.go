package access

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spool-run/spool"
)

// Inspect implements [spool.Inspector]. It needs the right to send input: an
// attribute that is looked up may be code.
func (b *backend) Inspect(ctx context.Context, id spool.RunID, question json.RawMessage) (json.RawMessage, error) {
	inspector, ok := b.inner.(spool.Inspector)
	if !ok {
		return nil, fmt.Errorf("inspect run: %w by this server", spool.ErrUnsupported)
	}
	info, err := b.enter(ctx, ActInput, Input, id)
	if err == nil {
		err = b.checkChange(&info, ActInput)
	}
	if err != nil {
		return nil, err
	}
	return inspector.Inspect(ctx, id, question)
}
