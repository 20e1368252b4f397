// Package python is the data of Python runs: how kernels and sandboxes are
// configured and what their events carry.
//
// A kernel is a Python interpreter of this machine that keeps its state from
// one cell to the next and may do all that its user may. A sandbox is Python in
// WebAssembly that reaches nothing but the files and services it was given.
// Both are runs that take turns, with the same events, so that a program swaps
// one for the other in the spec:
//
//	run, err := spool.Start(ctx, backend, python.KernelConfig{}.Spec())
//	run, err := spool.Start(ctx, backend, python.SandboxConfig{}.Spec())
//	…
//	turn, err := run.Exec(ctx, "", spool.Cell{Code: code})
//
// A turn has output events with the bytes that were written, display and
// result events whose Data is a [Display], at most one exception event with an
// [Exception], asks, and a done event, a [spool.Done]. Package render
// turns displays into text and images.
package python
