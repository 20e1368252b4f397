package pyodide

import "golang.org/x/sys/unix"

var forbiddenHere = []uint32{unix.SYS_KEXEC_FILE_LOAD}

var allowedHere = []uint32{unix.SYS_FSTATAT}
