package s3test_test

import (
	"testing"

	"github.com/spool-run/spool/internal/s3test"
	"github.com/spool-run/spool/internal/skiptest"
)

// TestCached builds versitygw, and checks that it serves. The script deps runs it before
// the other tests.
func TestCached(t *testing.T) {
	if _, err := s3test.Cached(); err != nil {
		skiptest.Missing(t, "%v", err)
	}
	if s := s3test.Start(t); s.URL == "" {
		t.Error("a store without an address")
	}
}
