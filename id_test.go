package spool_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/spool-run/spool"
)

func TestRunIDIsBounded(t *testing.T) {
	id := spool.RunID(strings.Repeat("a", 128))
	if err := id.Check(); err != nil {
		t.Errorf("an id of %d bytes: %v", len(id), err)
	}
	if err := (id + "a").Check(); !errors.Is(err, spool.ErrInvalid) {
		t.Errorf("a longer one: %v", err)
	}
}
