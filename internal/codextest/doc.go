// Package codextest drives the real codex CLI in tests: the pinned binary
// from npm, a proxy that cuts its connections, and end-to-end scenarios that
// any exec-server must pass.
//
// The CLI uses a model of package modeltest, which plays one step per request
// and records every request, so that a test can check the tool outputs. [Exec]
// runs `codex exec` with that model and with an exec-server as its only
// environment. The scenarios combine them:
//
//	codextest.ShellCommand(t, "ws://127.0.0.1:9000")
//
// The server must run on this machine and see the same files.
//
// Only the scenarios and [Binary] need package testing; a benchmark can use the
// rest.
package codextest
