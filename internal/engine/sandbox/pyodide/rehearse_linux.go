//go:build amd64 || arm64

package pyodide

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/spool-run/spool/internal/engine/sandbox/vfs"
)

// Before its first script a process runs a rehearsal script, which compiles the
// code and prepares the memory. This file answers the calls of that script.

// The files of the rehearsal. They are never written.
const (
	rehearsalDir  = "/workspace"
	rehearsalFile = "/workspace/f"
)

// rehearsal serves a process until it is ready.
func rehearsal(w io.Writer, in *frames) (*readyInfo, error) {
	tree := vfs.NewTree(vfs.NewMemory(vfs.NewQuota(1<<10, 8)))
	if err := errors.Join(tree.MkdirAll(rehearsalDir), tree.WriteFile(rehearsalFile, nil, 0o444)); err != nil {
		return nil, err
	}
	files, replies := vfs.NewServer(tree, 1), newReplies(w)
	defer files.Close() //nolint:errcheck // files in memory
	for {
		fr, err := in.next()
		if err != nil {
			return nil, err
		}
		switch fr.op {
		case opStdout, opStderr, opStarted, opDone:
		case opReady:
			var info readyInfo
			if err := json.Unmarshal(fr.payload, &info); err != nil {
				return nil, fmt.Errorf("decode what Node says: %w", err)
			}
			return &info, nil
		case opFailed:
			return nil, &failedError{string(fr.payload)}
		case opFile:
			if err := replies.file(files, fr.payload); err != nil {
				return nil, err
			}
		default:
			return nil, ErrProtocol
		}
	}
}

// failedError is why a process says that it cannot get ready.
type failedError struct{ text string }

func (e *failedError) Error() string { return e.text }
