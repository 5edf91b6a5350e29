package sandbox

import (
	"context"
	"sync"
)

// memo keeps the first result of a question that is asked by several goroutines.
// A failure is not kept: the next one asks again. The zero value is ready.
type memo[T any] struct {
	once sync.Once
	turn chan struct{} // held by the one who asks
	have bool
	val  T
}

func (m *memo[T]) get(ctx context.Context, ask func(context.Context) (T, error)) (T, error) {
	m.once.Do(func() { m.turn = make(chan struct{}, 1) })
	var zero T
	select {
	case m.turn <- struct{}{}:
	case <-ctx.Done():
		return zero, context.Cause(ctx)
	}
	defer func() { <-m.turn }()
	if m.have {
		return m.val, nil
	}
	val, err := ask(ctx)
	if err != nil {
		return zero, err
	}
	m.val, m.have = val, true
	return val, nil
}
