package pyodide

import "golang.org/x/sys/unix"

var allowedHere = []uint32{unix.SYS_FSTATAT}
