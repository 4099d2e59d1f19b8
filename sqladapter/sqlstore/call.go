package sqlstore

import (
	"context"
	"errors"
	"fmt"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/sqlerr"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

// answer runs one call and returns its answers. If ctx ends first each answer has the error of ctx.
// The call may still run then, and writes into slices that nobody sees.
func answer(ctx context.Context, n int, run func(answers []driver.Answer)) []driver.Answer {
	if n == 0 {
		return nil
	}
	// a call that still runs holds this variable, and may not have read it yet
	answers := make([]driver.Answer, n)
	err := within(ctx, func() error { run(answers); return nil })
	if err == nil {
		return answers
	}
	gone := make([]driver.Answer, n)
	for i := range gone {
		gone[i].Err = fmt.Errorf("sqlstore: %w", err)
	}
	return gone
}

// within returns when f does, or when ctx ends. Not every driver watches the context of
// every call: COMMIT and ROLLBACK have none.
func within(ctx context.Context, f func() error) error {
	if ctx == nil {
		return dialect.InputError("Context", "is nil")
	}
	if ctx.Err() != nil {
		return ended(ctx)
	}
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ended(ctx)
	}
}

// ended returns the error of a ctx that has ended, with its cause.
func ended(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if errors.Is(cause, err) {
		return cause
	}
	return fmt.Errorf("%w: %w", err, cause)
}

// admit answers the items whose check fails, and returns the others.
func admit(answers []driver.Answer, check func(i int) error) (todo []int) {
	for i := range answers {
		if answers[i].Err = check(i); answers[i].Err == nil {
			todo = append(todo, i)
		}
	}
	return todo
}

// failed answers items whose statement or transaction has failed.
func (s *Store) failed(ctx context.Context, err error, items []int, answers []driver.Answer) {
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("%w: %w", ended(ctx), err)
	case sqlerr.Full(err):
		err = fmt.Errorf("%w: %w", driver.ErrStoreFull, err)
	}
	err = fmt.Errorf("sqlstore: %w", s.notMigrated(err))
	for _, i := range items {
		answers[i] = driver.Answer{Err: err}
	}
}

// notMigrated names a table of s that does not exist.
func (s *Store) notMigrated(err error) error { return sqlerr.NotMigrated(err, s.tables...) }

func reqID(reqs []driver.ClaimRequest) func(int) driver.ID {
	return func(i int) driver.ID { return reqs[i].ID }
}

func changeID(changes []driver.Finish) func(int) driver.ID {
	return func(i int) driver.ID { return changes[i].ID }
}

func noSize(int) int { return 0 }

func all(n int) []int {
	items := make([]int, n)
	for i := range items {
		items[i] = i
	}
	return items
}

func pick[T any](from []T, items []int) []*T {
	picked := make([]*T, len(items))
	for n, i := range items {
		picked[n] = &from[i]
	}
	return picked
}
