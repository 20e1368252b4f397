package access

import (
	"context"
	"fmt"

	"github.com/spool-run/spool"
	"github.com/spool-run/spool/internal/record"
	"github.com/spool-run/spool/internal/sieve"
	"github.com/spool-run/spool/search"
)

// Search searches the runs that the subject may read. The audit log has one entry for
// a search, not one for each run.
func (b *backend) Search(ctx context.Context, q search.Query) (search.Page, error) {
	if err := b.subject.Scopes.Require(Read); err != nil {
		return search.Page{}, b.deny(ActSearch, "", err)
	}
	if q.After == "" {
		b.note(Entry{Act: ActSearch})
	}
	page, err := search.Search(ctx, searched{b, b}, q)
	if err != nil {
		return search.Page{}, err
	}
	size := 0
	for i := range page.Hits {
		size += len(page.Hits[i].Text)
	}
	return page, b.pay(ctx, size)
}

// searched is the backend of one search, which lists what the subject may see.
type searched struct {
	spool.Backend
	of *backend
}

// ReadRecords implements [record.Reader] for a run that was listed. It is no read for
// the audit log.
func (s searched) ReadRecords(ctx context.Context, id spool.RunID, q spool.Query, dst []byte) ([]byte, spool.Page, error) {
	had := len(dst)
	dst, page, err := record.Read(ctx, s.of.inner, id, q, dst)
	if err == nil && !s.of.owns(&page.Info) {
		return dst[:had], spool.Page{}, notFound(id)
	}
	if err != nil {
		err = fmt.Errorf("search: %w", err)
	}
	return dst, page, err
}

// Sift implements [sieve.Sifter] for a run that was listed.
func (s searched) Sift(ctx context.Context, id spool.RunID, after spool.Seq, q *sieve.Query, buf []byte) ([]sieve.Part, []byte, error) {
	sifter, ok := s.of.inner.(sieve.Sifter)
	if !ok {
		return nil, buf, nil
	}
	info, err := s.of.inner.Stat(ctx, id)
	if err != nil {
		return nil, buf, fmt.Errorf("search: %w", err)
	}
	if !s.of.owns(&info) {
		return nil, buf, notFound(id)
	}
	return sifter.Sift(ctx, id, after, q, buf)
}
