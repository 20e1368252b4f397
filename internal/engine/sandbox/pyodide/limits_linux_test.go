package pyodide

import (
	"encoding/binary"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spool-run/spool/internal/engine/sandbox/guest"
)

// A frame of an interpreter has at most maxFrame bytes, and a script at most
// maxScript, encoded.
func TestFramesAndScriptsAreBounded(t *testing.T) {
	for size, want := range map[uint32]error{maxFrame: io.ErrUnexpectedEOF, maxFrame + 1: ErrProtocol} {
		header := binary.LittleEndian.AppendUint32(nil, size)
		frames := newFrames(strings.NewReader(string(append(header, make([]byte, frameHeader)...))))
		if _, err := frames.next(); !errors.Is(err, want) {
			t.Errorf("a frame of %d bytes: %v, want %v", size, err, want)
		}
	}
	_, err := new(turn).run(t.Context(), request{Script: guest.Script{Code: strings.Repeat("#", maxScript)}})
	if err == nil || !strings.Contains(err.Error(), "the script is larger than 67108864 bytes") {
		t.Errorf("a large script: %v", err)
	}
}

// The lock file of a distribution has at most maxLock bytes.
func TestLockFileIsBounded(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "pyodide.mjs"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	lock := filepath.Join(dir, "pyodide-lock.json")
	if err := os.WriteFile(lock, []byte(`{"packages":{}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(lock, maxLock+1); err != nil {
		t.Fatal(err)
	}
	if _, err := openDist(dir); !errors.Is(err, ErrNoDist) || !strings.Contains(err.Error(), "too large") {
		t.Error(err)
	}
}
