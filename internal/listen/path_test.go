package listen

import (
	"path/filepath"
	"strings"
	"testing"
)

func TestSocketPathIsBounded(t *testing.T) {
	path := filepath.Join("/", strings.Repeat("s", maxSocketPath))
	if _, err := listenUnix(path); err == nil || !strings.Contains(err.Error(), "at most 103 bytes") {
		t.Error(err)
	}
}
