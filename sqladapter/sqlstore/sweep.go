package sqlstore

import (
	"context"
	"fmt"
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/sqladapter/internal/dialect"
)

const (
	// DefaultSweepLimit is the default of SweeperConfig.Limit.
	DefaultSweepLimit = 500
	// DefaultSweepEvery is the default of SweeperConfig.Every.
	DefaultSweepEvery = 10 * time.Second

	maxSweep = 10_000
)

// SweepResult counts what a sweep has done.
type SweepResult struct {
	// Removed is how many expired rows were removed: nothing is remembered of them.
	Removed int
	// Released is how many lapsed claims were released, as by their owners.
	Released int
	// Uncertain is how many claims had lapsed after MarkIrreversible: somebody has to find out, see
	// package dedup/resolver.
	Uncertain int
}

// Sweep removes at most limit rows that have expired, and releases at most limit claims whose lease
// has lapsed, oldest first. Call it again while Removed, or the sum of Released and Uncertain,
// equals limit. A claim that it released keeps attempt, fence and steps for its hold. If its owner
// comes back, the owner holds nothing any more.
//
// It never touches a live lease. It checks a due row under its lock, by the clock of the database
// or this process's, whichever is behind: a clock that has jumped ahead removes nothing. It skips
// rows that others have locked (SQLite has one writer at a time), so several processes may sweep at
// once and do not wait for each other. Without sweeps everything works, but the table grows
// forever, and lapsed claims are shown as in progress.
//
// A limit above 10 000 or below 1 is a [*dedup.InputError]; 500 keeps a transaction within
// some milliseconds. It runs two transactions of about four round trips.
func (s *Store) Sweep(ctx context.Context, limit int) (SweepResult, error) {
	var swept SweepResult
	if limit < 1 || limit > maxSweep {
		return swept, dialect.InputError("limit",
			fmt.Sprintf("is %d; from 1 to %d is allowed", limit, maxSweep))
	}
	err := within(ctx, func() error {
		for _, expired := range []bool{true, false} {
			var found SweepResult
			err := s.again(ctx, func(int) error {
				found = SweepResult{}
				return s.transact(ctx, func(tx querier) error {
					return s.sweepIn(ctx, tx, expired, limit, &found)
				})
			})
			if err != nil {
				return fmt.Errorf("sqlstore: sweep: %w", s.notMigrated(err))
			}
			swept = SweepResult{swept.Removed + found.Removed, swept.Released + found.Released,
				swept.Uncertain + found.Uncertain}
		}
		return nil
	})
	if err != nil {
		return SweepResult{}, err // a call that still runs after ctx has ended may still count
	}
	return swept, nil
}

// sweepIn is one transaction of a sweep: it locks rows, and then checks them once more.
func (s *Store) sweepIn(ctx context.Context, tx querier, expired bool, limit int,
	swept *SweepResult) error {
	rows, now, err := s.rows(ctx, tx, func() statement { return s.dialect.due(expired, limit) })
	if err != nil {
		return err
	}
	// When the database's clock jumps ahead nothing becomes old: this process's clock has to agree.
	now = min(now, time.Now().UnixMicro())
	var gone []driver.ID
	var changed []*claimRow
	for _, r := range rows {
		if r.bad != nil {
			continue // of a newer version, whose own sweeper handles it
		}
		remove, write := decideSweep(r, now)
		switch {
		case remove:
			gone = append(gone, r.id)
		case write:
			changed = append(changed, r)
		}
	}
	for _, r := range changed {
		if r.state == driver.StateUncertain {
			swept.Uncertain++
		} else {
			swept.Released++
		}
	}
	swept.Removed = len(gone)
	return s.writeSwept(ctx, tx, gone, changed)
}

// writeSwept writes in chunks that fit into a statement.
func (s *Store) writeSwept(ctx context.Context, tx querier, gone []driver.ID,
	changed []*claimRow) error {
	for n := s.dialect.chunk(); len(gone) > 0; {
		part := gone[:min(n, len(gone))]
		if err := s.exec(ctx, tx, func() statement {
			return s.dialect.remove(part)
		}, len(part)); err != nil {
			return err
		}
		gone = gone[len(part):]
	}
	return s.save(ctx, tx, changed)
}

// SweeperConfig says how [Store.RunSweeper] sweeps. The zero value is useful.
type SweeperConfig struct {
	// Every is how long it waits when nothing is left to sweep, give or take a third, so that
	// processes do not all sweep at the same moment. Default: [DefaultSweepEvery].
	Every time.Duration
	// Limit of each [Store.Sweep]. Default: [DefaultSweepLimit].
	Limit int
	// Swept, if set, is called with the result of each sweep that did something. It must return
	// soon.
	Swept func(SweepResult)
	// Failed, if set, is called with the error of each sweep that failed; the next sweep comes
	// after Every. It must return soon.
	Failed func(error)
}

// RunSweeper sweeps until ctx ends, and returns the cause of ctx. A nil ctx and a bad field of cfg
// are a [*driver.InputError]. It starts no goroutine: run it in one of yours, in every process or
// in one; see [Store.Sweep].
func (s *Store) RunSweeper(ctx context.Context, cfg SweeperConfig) error {
	switch {
	case ctx == nil:
		return dialect.InputError("Context", "is nil")
	case cfg.Every < 0:
		return dialect.InputError("SweeperConfig.Every", "is negative")
	case cfg.Limit < 0 || cfg.Limit > maxSweep:
		return dialect.InputError("SweeperConfig.Limit",
			fmt.Sprintf("is %d; at most %d is allowed", cfg.Limit, maxSweep))
	}
	if cfg.Every == 0 {
		cfg.Every = DefaultSweepEvery
	}
	if cfg.Limit == 0 {
		cfg.Limit = DefaultSweepLimit
	}
	pause := backoff.Policy{Base: cfg.Every + cfg.Every/3, Cap: cfg.Every + cfg.Every/3,
		Kind: backoff.Equal}
	for {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		swept, err := s.Sweep(ctx, cfg.Limit)
		if ctx.Err() == nil {
			cfg.report(swept, err)
		}
		if err == nil && max(swept.Removed, swept.Released+swept.Uncertain) == cfg.Limit {
			continue // there is more
		}
		if err := backoff.Sleep(ctx, pause.Delay(0, 0, nil)); err != nil {
			return err
		}
	}
}

func (c *SweeperConfig) report(swept SweepResult, err error) {
	switch {
	case err != nil && c.Failed != nil:
		c.Failed(err)
	case swept != SweepResult{} && c.Swept != nil:
		c.Swept(swept)
	}
}
