package engine

// The reasons of a [spool.StartError].
const (
	StartInvalid       = "invalid"        // the spec makes no sense
	StartNotFound      = "not_found"      // no such program
	StartNotExecutable = "not_executable" // found, but may not be executed
	StartBadFormat     = "bad_format"     // not a program for this machine
	StartBadCwd        = "bad_cwd"        // the working directory is missing or no directory
	StartLimit         = "limit"          // processes, descriptors or memory ran out
	StartPTY           = "pty"            // no terminal could be had
	StartNameTaken     = "name_taken"     // a live run has the name
	StartUnsupported   = "unsupported"    // the backend cannot do what was asked
	StartOther         = "other"
)

// NoLimitHint is the next step after a start with a limit that this machine cannot
// enforce.
const NoLimitHint = "start without the limit, or where control groups with memory and cpu may be made, as by root; \"spool doctor\" tells"

// ClassNotRun is the [spool.Done.ErrorClass] of a turn that never began.
const ClassNotRun = "not_run"
