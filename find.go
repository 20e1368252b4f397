package spool

import (
	"cmp"
	"context"
	"errors"
	"fmt"
)

// Find returns the run that a person means by text: its id, its name, of which
// the newest run has it, or a unique prefix of its id.
//
// The error is [ErrAmbiguous] if text is the prefix of several ids, or the name
// of one run and the prefix of another's id; [ErrNotFound] if it is neither;
// [ErrInvalid] if it is empty.
func Find(ctx context.Context, b Backend, text string) (*Run, error) {
	run, err := find(ctx, b, text)
	if err != nil {
		return nil, fmt.Errorf("find run %q: %w", text, err)
	}
	return &Run{b, run}, nil
}

func find(ctx context.Context, b Backend, text string) (RunID, error) {
	if text == "" {
		return "", fmt.Errorf("%w: empty name", ErrInvalid)
	}
	isID := RunID(text).Check() == nil
	if isID {
		info, err := b.Stat(ctx, RunID(text))
		if err == nil {
			return info.ID, nil
		}
		if !errors.Is(err, ErrNotFound) {
			return "", err
		}
	}
	named, nameErr := ids(ctx, b, Filter{Name: text, Limit: 1})
	var prefixed []RunID
	var prefixErr error
	if isID {
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
	return "", cmp.Or(nameErr, prefixErr, ErrNotFound)
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
