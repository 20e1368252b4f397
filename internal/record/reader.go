package record

import (
	"context"

	"github.com/spool-run/spool"
)

// Reader is a [spool.Backend] that reads pages of records, for a caller that looks
// at the bytes before it decodes them.
type Reader interface {
	// ReadRecords is Read, but it appends the records of the events to dst. The
	// page has no events. The caller verifies the checksums.
	ReadRecords(ctx context.Context, id spool.RunID, q spool.Query, dst []byte) ([]byte, spool.Page, error)
}

// Read is [Reader.ReadRecords] of any backend.
func Read(ctx context.Context, b spool.Backend, id spool.RunID, q spool.Query, dst []byte) ([]byte, spool.Page, error) {
	if r, ok := b.(Reader); ok {
		return r.ReadRecords(ctx, id, q, dst)
	}
	return encodePage(ctx, b, id, q, dst)
}

// encodePage reads events and appends their records to dst.
func encodePage(ctx context.Context, b spool.Backend, id spool.RunID, q spool.Query, dst []byte) ([]byte, spool.Page, error) {
	page, err := b.Read(ctx, id, q)
	for i := 0; err == nil && i < len(page.Events); i++ {
		dst, err = Append(dst, &page.Events[i])
	}
	return dst, page, err
}
