package pyodide

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"

	"github.com/spool-run/spool/internal/seccomp"
)

// canFork says that processes can be forked from outside on this architecture.
const canFork = false

const forkFlags = unix.CLONE_PARENT | uint32(unix.SIGCHLD)

type zygote struct {
	data int64
	mark uint64
}

func newZygote(*os.File, int, int, byte, seccomp.Program, func(*os.File) error) (*zygote, error) {
	return nil, errors.New("not on this architecture")
}

func (m *zygote) fork(int, func() error, func(int) error) (int, error) {
	return 0, errors.New("not on this architecture")
}
