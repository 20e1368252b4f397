// Package torture proves, or refutes, that an exec-server loses, repeats,
// reorders, invents and leaves running nothing.
//
// It has a server run workers that write numbered, checksummed records on
// pipes and terminals, some through children that left their session, and ends
// them in every way a process can end. Meanwhile a schedule that follows from a
// seed cuts connections in the middle of a frame, stalls readers, kills the
// server, its keeper and the workers, fills the disk and swaps the binary. For
// every run it then checks what its client was given, event by event and
// record by record, against what the worker says it wrote: the workers keep a
// ledger in a shared page that survives their own death.
//
// Against Spool all of it is used, through the codex dialect and through
// package client. Any other exec-server gets what a client can do to it.
package torture
