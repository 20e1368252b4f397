package runfile

import (
	"bytes"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

func TestSectionsAreBounded(t *testing.T) {
	var head [sectionHeader]byte
	binary.LittleEndian.PutUint32(head[1:], maxSection+1)
	if _, _, err := readSection(bytes.NewReader(head[:]), nil); !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "a section of") {
		t.Errorf("a large section: %v", err)
	}
	text := []byte(`"` + strings.Repeat("x", maxJSON-2) + `"`)
	var s string
	if err := decodeJSON(text, "text", &s); err != nil {
		t.Errorf("%d bytes of JSON: %v", len(text), err)
	}
	if err := decodeJSON(append(text, ' '), "text", &s); !errors.Is(err, ErrDamaged) {
		t.Errorf("one more: %v", err)
	}
}
