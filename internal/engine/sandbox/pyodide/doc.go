// Package pyodide is the sandbox's full back end: real Pyodide, with numpy and
// any other package that has a wheel, in Node.
//
// Loading Pyodide takes seconds, so it is done once. A process that has loaded
// it, with its packages imported, waits for its first message and never gets
// it: every interpreter is a fork of that process, made in milliseconds and
// sharing its memory until it writes to it. Node cannot fork itself. A tracer
// makes it: it stops the process in its wait, has it execute clone, and lets
// the copy wait for a message of its own (see trace_linux_amd64.go). Its memory
// is in a file that copies map privately, because a fork copies the page tables
// of any other (see share_linux_amd64.go). One copy is made ahead of time.
//
// # Protections
//
// Python reaches JavaScript in Pyodide by design, and JavaScript reaches the
// whole process. So no protection is inside it. Around it is a cell of package
// isolate, whose first process is a supervisor of ours that starts Node: its own
// namespaces for users, mounts, processes, network, IPC and host name; a root that holds
// nothing but Node, its libraries and the distribution, all read-only; an empty
// environment; no capabilities and no way to get any; a seccomp filter that
// knows no sockets, no new processes, no signals; and for forked interpreters a
// second one that knows only what an interpreter needs. Memory is bounded in
// the interpreter, where the script sees a MemoryError, and behind it by the
// kernel. What is left is one connection, over which the interpreter asks for
// output, input, files and answers, all of which are served from the vfs.FS and
// the guest.Host of its script, with bounds on every message.
//
// Interpreters of one setup share those namespaces. They see nothing of each
// other: there is no /proc, no writable file, no signal and no socket by which
// they could.
//
// Where a process cannot be traced, and for a distribution that is not really
// Pyodide, interpreters are processes of their own, started ahead of time.
// Where there are no namespaces, Landlock keeps such a process to the files it
// needs, and seccomp from the network and from others. [guest.Prewarm] says
// which protections are active. The back end refuses to start if strict
// isolation was asked for and one is missing, or if nothing protects files.
package pyodide
