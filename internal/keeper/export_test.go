package keeper

import "context"

// ConnectAs connects to the keepers of the state directory and takes them for ones of
// another version of the protocol. It must be called before the backend is used.
func (b *Backend) ConnectAs(ctx context.Context, protocol int, owners ...string) error {
	for _, owner := range owners {
		k, err := b.keeperOf(ctx, owner)
		if err != nil {
			return err
		}
		k.hello.Protocol = protocol
	}
	return nil
}

// Mirrors returns how many runs this process holds, and how many finished ones it may.
func (b *Backend) Mirrors() (held, kept int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.runs), keptMirrors + keptMirrors/2
}
