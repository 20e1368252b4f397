// Package client is the backend of another machine: the runs of a server that
// was started with "spool exec-server", behind the same interface as those of
// package local.
//
//	backend, err := client.Dial(ctx, "wss://build.example.org:9000", client.Options{Token: token})
//	if err != nil {
//		return err
//	}
//	defer backend.Close()
//	run, err := spool.Start(ctx, backend, spool.Spec{
//		Argv:      []string{"make", "test"},
//		EnvPolicy: &spool.EnvPolicy{Inherit: "core"},
//	})
//
// Paths, programs and the environment are those of the server. Closing the
// client leaves the runs alone; any client finds them again by id or name.
//
// # Lost connections
//
// A connection that is lost is replaced, for as long as [Options.Reconnect]
// says. Every reader goes on after the last event it saw: it notices nothing
// but the time. A start or an input that was under way is repeated; it carries
// an id, so the server applies it once.
//
// If the server does not come back in time, calls return a
// [*DisconnectedError], and a reader gets two events with a seq of zero, since
// neither is in the log: failed, with an unknown outcome, and closed. The run
// may well go on. Come back later and read after the last seq that was
// not zero.
//
// # Addresses and access
//
// An address begins with ws://, wss:// or unix://. A server that can be reached
// from other machines wants a token, see [Options.Token], and has a certificate,
// see [Options.TLS] and [Options.TLSPin]. The client sends no token over ws:// to
// another machine. What is wrong with an address or a token is [ErrUnauthorized],
// [ErrNoTLS], [ErrOtherCertificate] or [ErrPlaintext], by [errors.Is]. A client is safe for concurrent use, and one is enough: its
// readers share the connection without waiting for each other.
package client
