// Package torture tests that an exec-server loses, repeats, reorders and
// invents no event, and leaves no process running.
//
// The server runs workers that write numbered, checksummed records on pipes and
// terminals, some of them through children that left their session. The workers
// end in every way a process can end. Meanwhile a schedule derived from a seed
// cuts connections in the middle of a frame, stalls readers, kills the server,
// its keeper and the workers, fills the disk and replaces the binary. For every
// run the package compares the events its client received, record by record,
// with the ledger of the worker: a shared page that survives the worker's
// death.
//
// A second torture, [Upkeep], kills processes that migrate, compress and prune the
// runs of a state directory.
//
// Against Spool all faults are used, through the codex dialect and through
// package client. Against any other exec-server only faults of clients and
// workers are used.
package torture
