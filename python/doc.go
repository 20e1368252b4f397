// Package python is the data of Python runs: how kernels and sandboxes are
// configured and what their events carry.
//
// A kernel is a Python interpreter of this machine that keeps its state from
// one cell to the next and may do all that its user may. A sandbox is Python in
// WebAssembly that reaches nothing but the files and services it was given.
// Both are runs that take turns, with the same kinds of event, so that a program
// swaps one for the other in the spec:
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
//
// # Show something
//
// The value of the last expression of a cell is its result. In a kernel, the
// function display, which needs no import, shows any object: as HTML, PNG, SVG,
// Markdown, LaTeX or JSON if the object has _repr_html_, _repr_png_ and the like
// or _repr_mimebundle_, and as text otherwise. Figures of matplotlib are shown by
// plt.show() and at the end of the cell. Large values and images are blobs; see
// [spool.Run.Blob]. A kernel also understands top-level await, %pip, %time,
// %timeit, %cd, %env, %run, %%bash and !command.
//
// Code in a sandbox has no display function, and its results are plain text in
// the embedded back end.
package python
