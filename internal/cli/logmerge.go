package cli

import (
	"context"
	"errors"
	"iter"
	"sync"

	"github.com/spool-run/spool"
)

// printMerged prints what several logs hold now, in the order of time.
func printMerged(ctx context.Context, readers []*logReader) error {
	type source struct {
		reader *logReader
		next   func() (spool.Event, error, bool)
		event  spool.Event
	}
	var sources []*source
	for _, r := range readers {
		if r.lines.keep >= 0 { // the last lines of each run
			if err := r.readTail(ctx); err != nil {
				return err
			}
			continue
		}
		next, stop := iter.Pull2(r.events(ctx))
		defer stop()
		s := &source{reader: r, next: next}
		sources = append(sources, s)
	}
	advance := func(i int) error {
		e, err, ok := sources[i].next()
		if err != nil {
			return err
		}
		if !ok {
			if !sources[i].reader.options.follow {
				err = sources[i].reader.lines.end()
			}
			sources[i] = nil
			return err
		}
		sources[i].event = e
		return nil
	}
	for i := range sources {
		if err := advance(i); err != nil {
			return err
		}
	}
	for {
		first := -1
		for i, s := range sources {
			if s != nil && (first < 0 || s.event.Time.Before(sources[first].event.Time)) {
				first = i
			}
		}
		if first < 0 {
			return nil
		}
		s := sources[first]
		err := s.reader.print(ctx, &s.event)
		if errors.Is(err, errUntil) {
			sources[first] = nil
			err = s.reader.lines.end()
		} else if err == nil {
			err = advance(first)
		}
		if err != nil {
			return err
		}
	}
}

// events yields what the log holds at the beginning.
func (r *logReader) events(ctx context.Context) iter.Seq2[spool.Event, error] {
	return func(yield func(spool.Event, error) bool) {
		errStop := errors.New("stop")
		err := eachEvent(ctx, r.run, r.after, r.last, func(e *spool.Event) error {
			if !yield(*e, nil) {
				return errStop
			}
			return nil
		})
		if err != nil && !errors.Is(err, errStop) {
			yield(spool.Event{}, err)
		}
	}
}

// followAll follows several logs at once. The first error ends all.
func followAll(ctx context.Context, readers []*logReader) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for _, r := range readers {
		wg.Go(func() {
			if err := r.followLog(ctx); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}
