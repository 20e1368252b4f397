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
// Runs live in a keeper, a process per state directory that is started when
// it is first needed and ends by itself when nothing runs. Their logs are files
// of the state directory. A program that ends, crashes or is killed
// therefore loses nothing: it, or any other, opens the directory again, finds
// the run by its id or name, and follows it from the last event it saw. The
// spool command sees the same runs.
//
// With [Options.InProcess] there is no keeper: runs are children of this
// process and end with it. Their logs stay all the same. If the process dies,
// the next Open ends what it left running and closes those runs
// with an unknown outcome.
//
// # Engines
//
//	process  a command                       spool.Spec{Argv: …}
//	kernel   persistent Python               python.KernelConfig{…}.Spec()
//	sandbox  untrusted Python, WebAssembly   python.SandboxConfig{…}.Spec()
//	agent    a coding agent                  agent.Config{…}
//
// Processes, kernels and agents run on Linux.
package local
