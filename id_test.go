package spool

import (
	"errors"
	"strings"
	"testing"
)

func TestRunIDIsBounded(t *testing.T) {
	id := RunID(strings.Repeat("a", maxIDLength))
	if err := id.Check(); err != nil {
		t.Errorf("an id of %d bytes: %v", len(id), err)
	}
	if err := (id + "a").Check(); !errors.Is(err, ErrInvalid) {
		t.Errorf("a longer one: %v", err)
	}
}
