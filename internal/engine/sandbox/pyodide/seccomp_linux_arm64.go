package pyodide

import "golang.org/x/sys/unix"

const (
	auditArch = 0xC00000B7
	x32       = false
)

var forbiddenHere = []uint32{unix.SYS_KEXEC_FILE_LOAD}

var allowedHere = []uint32{unix.SYS_FSTATAT}
