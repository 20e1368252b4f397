// Package codextest drives the real codex CLI in tests: the pinned binary
// from npm, a proxy that cuts its connections, and end-to-end scenarios that
// any exec-server must pass.
//
// The CLI talks to a model of package modeltest, which plays one step per
// request and keeps every request, so that a test can see the tool outputs
// which came back. [Exec] runs `codex exec` against that model with an exec-server as
// its only environment. The scenarios put these together:
//
//	codextest.ShellCommand(t, "ws://127.0.0.1:9000")
//
// They expect the server on this machine, seeing the same files.
//
// Nothing but the scenarios and [Binary] needs package testing's machinery,
// so that a benchmark can use the same parts.
package codextest
