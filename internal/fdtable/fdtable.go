// Package fdtable makes room for many open files before they are opened.
//
// The kernel doubles a full table of open files, and whoever opens the next one waits
// until no processor looks at the old table any more: 5 to 20 ms in a program with
// threads. A process that starts runs for others would let one of them wait that long
// at 64, 128, 256 … open files.
package fdtable

// Size is what a process that serves many runs reserves. It takes 33 KiB of the kernel's
// memory.
const Size = 4096
