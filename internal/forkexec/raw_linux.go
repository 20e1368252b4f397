//go:build amd64 || arm64

package forkexec

// Raw makes a system call that clones a child which shares the memory of this process,
// with CLONE_VM and CLONE_VFORK. It returns in the child, which runs on the stack of its
// parent, and in the parent once the child has executed a program or ended.
//
// The child must make raw system calls only, and must not return from the function that
// calls Raw.
//
//go:noescape
func Raw(trap, a1, a2, a5, a6 uintptr) (r1, err uintptr)
