package spool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
)

// contestedLength is the length from which on a name that is also the prefix of
// another run's id is ambiguous. Names such as "a" or "db" are shorter: one id
// in a thousand begins with two given characters, and such names must keep
// working.
const contestedLength = 4

// Find returns the run that a person means by text: the run with that id, the
// newest run with that name, or the one run whose id begins with text. The run
// may have ended; [Backend.List] with [Filter.Live] finds live runs only.
//
// The error is [ErrAmbiguous] if text is the prefix of several ids, or if it has
// four or more characters and is both the name of one run and a prefix of the id
// of another; [ErrNotFound] if no run matches; [ErrInvalid] if text is empty.
func Find(ctx context.Context, b Backend, text string) (*Run, error) {
	run, err := find(ctx, b, text)
	if err != nil {
		return nil, fmt.Errorf("find run %q: %w", text, err)
	}
	return Attach(b, run), nil
}

func find(ctx context.Context, b Backend, text string) (RunID, error) {
	if text == "" {
		return "", fmt.Errorf("%w: empty name", ErrInvalid)
	}
	isID := RunID(text).Check() == nil
	notFound := ErrNotFound
	if isID {
		info, err := b.Stat(ctx, RunID(text))
		if err == nil {
			return info.ID, nil
		}
		if !errors.Is(err, ErrNotFound) {
			return "", err
		}
		// An error with a second cause says why the run may exist nevertheless.
		var both interface{ Unwrap() []error }
		if errors.As(err, &both) && len(both.Unwrap()) > 1 {
			notFound = err
		}
	}
	named, nameErr := ids(ctx, b, Filter{Name: text, Limit: 1})
	var prefixed []RunID
	var prefixErr error
	if isID && (len(named) == 0 || len(text) >= contestedLength) {
		prefixed, prefixErr = ids(ctx, b, Filter{Prefix: RunID(text), Limit: 2})
	}
	switch {
	case len(named) == 1:
		for _, id := range prefixed {
			if id != named[0] {
				return "", fmt.Errorf("%w: it is the name of run %s, and the id of run %s begins with it; use the whole id", ErrAmbiguous, named[0], id)
			}
		}
		return named[0], nil
	case len(prefixed) == 1:
		return prefixed[0], nil
	case len(prefixed) > 1:
		return "", fmt.Errorf("%w: the ids of %s and %s begin with it", ErrAmbiguous, prefixed[0], prefixed[1])
	}
	return "", cmp.Or(nameErr, prefixErr, notFound)
}

// ids lists the ids of the runs that a filter selects. A run that cannot be
// read does not hide the others.
func ids(ctx context.Context, b Backend, f Filter) (found []RunID, err error) {
	for info, e := range b.List(ctx, f) {
		if e != nil {
			err = e
			continue
		}
		found = append(found, info.ID)
	}
	return found, err
}
