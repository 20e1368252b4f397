// Package local runs things on this machine: [Open] gives a [spool.Backend]
// with every engine, durable logs, and runs that outlive the program.
//
//	func main() {
//		local.ChildMain() // first: see below
//
//		backend, err := local.Open("", local.Options{})
//		if err != nil {
//			log.Fatal(err)
//		}
//		defer backend.Close()
//
//		run, err := spool.Start(ctx, backend, spool.Spec{
//			Argv:      []string{"make", "test"},
//			EnvPolicy: &spool.EnvPolicy{Inherit: "all"},
//		})
//		…
//	}
//
// # Child processes
//
// Spool executes the program it is part of again, for the process that keeps
// runs and for those that confine sandboxed code. A program that uses this
// package therefore calls [ChildMain] first in main, and a test that does so
// first in TestMain. Without it Open fails.
//
// # Where runs live
//
// Runs live in a keeper: one process per state directory, build of the program
// and [Options], which starts when it is needed and ends by itself a few
// seconds after its last run. The logs are files of the state directory. A program that ends, crashes or is killed
// therefore loses nothing: it, or any other, opens the directory again, finds
// the run by its id or name, and follows it from the last event it saw. The
// spool command sees the same runs.
//
// With [Options.InProcess] there is no keeper: runs are children of this
// process and end with Close. Their logs stay. If the process is killed, its
// runs go on until the next Open of the directory, which ends them and closes
// their logs with an unknown outcome.
//
// # Engines
//
//	process  a command                       spool.Spec{Argv: …}
//	kernel   persistent Python               python.KernelConfig{…}.Spec()
//	sandbox  untrusted Python, WebAssembly   python.SandboxConfig{…}.Spec()
//	agent    a coding agent                  agent.Config{…}.Spec()
//
// Processes, kernels and agents run on Linux.
package local
