package doctor

import (
	"context"
	"sync"
)

// shared is the result of a probe that several checks use.
type shared[T any] struct {
	try   func(context.Context) (T, error)
	once  sync.Once
	value T
	err   error
}

// get runs the probe the first time.
func (s *shared[T]) get(ctx context.Context) (T, error) {
	s.once.Do(func() { s.value, s.err = s.try(ctx) })
	return s.value, s.err
}
