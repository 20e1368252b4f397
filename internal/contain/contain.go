// Package contain keeps a panic to the connection whose goroutine has it, as net/http
// does for its handlers: one client, or one defect of a backend, does not end a server
// and with it the connections of all others.
package contain

import (
	"log/slog"
	"runtime/debug"
)

// Do calls do and reports whether it returned. If do panicked, Do logs that with the
// stack; what is the subject of the message. The caller ends what the panic left half done.
func Do(log *slog.Logger, what string, do func()) (returned bool) {
	defer func() {
		if p := recover(); p != nil {
			log.Error(what+" panicked", "panic", p, "stack", string(debug.Stack()))
		}
	}()
	do()
	return true
}
