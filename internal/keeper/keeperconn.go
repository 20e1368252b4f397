package keeper

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/wire/rpc"
	"github.com/spool-run/spool/internal/wire/runproto"
)

// keeperConn is a connection to one keeper.
type keeperConn struct {
	transport *transport
	owner     string // the keeper's id
	hello     helloResult
	first     firstUpdates
	asked     asked
}

// alive reports whether the connection has not ended.
func (k *keeperConn) alive() bool {
	select {
	case <-k.transport.rpc.Done():
		return false
	default:
		return true
	}
}

// call makes a request. A lost keeper is [rpc.ErrConnClosed].
func (k *keeperConn) call(ctx context.Context, method string, params, result any) error {
	return runproto.DecodeError(k.transport.rpc.Call(ctx, method, params, result))
}

// start starts a run.
func (k *keeperConn) start(ctx context.Context, p record.Start, info *spool.Info) error {
	b, err := k.transport.start(ctx, func(dst []byte) ([]byte, error) { return record.AppendStart(dst, &p) })
	*info, err = k.started(startAnswer{b, err})
	return err
}

// tryStart is start that does not wait; see [transport.tryStart].
func (k *keeperConn) tryStart(p record.Start, done func(spool.Info, error)) bool {
	return k.transport.tryStart(func(dst []byte) ([]byte, error) { return record.AppendStart(dst, &p) }, func(a startAnswer) { done(k.started(a)) })
}

// started decodes the answer to a start.
func (k *keeperConn) started(a startAnswer) (spool.Info, error) {
	if a.err != nil {
		return spool.Info{}, runproto.DecodeError(a.err)
	}
	info, err := record.DecodeInfo(a.info)
	if err != nil {
		return spool.Info{}, fmt.Errorf("keeper %s: %w", k.owner, err)
	}
	return info, nil
}

// serve handles the keeper's messages until the connection ends.
func (k *keeperConn) serve(ctx context.Context) {
	k.transport.serve(ctx, k)
	k.first.close()
	k.asked.close(fmt.Errorf("%w: %w", rpc.ErrConnClosed, k.transport.rpc.Err()))
}

// binary implements [handler].
func (k *keeperConn) binary(kind byte, b []byte) error {
	switch kind {
	case messageUpdate:
	case messageNews, messageNoNews:
		return k.asked.answer(kind, b)
	default:
		return nil // a newer keeper may send more
	}
	update, err := record.DecodeUpdate(b)
	if err != nil {
		return fmt.Errorf("keeper %s: %w", k.owner, err)
	}
	k.first.deliver(update)
	return nil
}

// Malformed implements [rpc.Handler].
func (k *keeperConn) Malformed(err error) error { return err }

// Notification implements [rpc.Handler]. A newer keeper may send some.
func (k *keeperConn) Notification(string, json.RawMessage) error { return nil }

// Request implements [rpc.Handler]. A keeper sends no requests.
func (k *keeperConn) Request(r *rpc.Request) {
	r.Reply(nil, rpc.Errorf(rpc.CodeMethodNotFound, "unknown method %s", r.Method))
}
