package bloom

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// FollowConfig says how Follow reads a store that others write to.
type FollowConfig struct {
	// Every is the time between the beginnings of two scans. Required.
	Every time.Duration
	// Overlap is the longest delay between a mark's time and the moment when a scan can see the
	// mark. A commit that hangs for longer is missed. Required.
	Overlap time.Duration
	// Scan yields every mark that is visible and whose time is at most age ago, with its age now.
	// It stops when its context ends or yield fails, and returns that error. Required.
	Scan func(ctx context.Context, age time.Duration,
		yield func(id [16]byte, age time.Duration) error) error
	// Progress is called now and then, and at the end of a scan, with its progress. Default: nil.
	Progress func(Progress)
}

func (c FollowConfig) check() error {
	switch {
	case c.Every <= 0:
		return errors.New("bloom: FollowConfig.Every is required")
	case c.Overlap <= 0:
		return errors.New("bloom: FollowConfig.Overlap is required")
	case c.Scan == nil:
		return errors.New("bloom: FollowConfig.Scan is required")
	}
	return nil
}

// Follow begins a Feed and keeps it close behind a store. It scans the whole window first. Then,
// once per Every, it scans the marks made since Overlap before the beginning of the last scan.
// After each scan it sets Feed.Through to the beginning of the scan less Overlap, so that Absent
// can prove older ids absent. A scan that fails is reported to Progress. The next scan starts where
// the failed scan started. Meanwhile Through stands still, and answers become Unknown. Follow
// returns when ctx ends, with its cause, or with ErrDead when another Feed was begun.
func (f *Filter) Follow(ctx context.Context, source Source, c FollowConfig) error {
	if err := errors.Join(c.check(), source.check()); err != nil {
		return err
	}
	feed := f.Begin(source)
	timer := time.NewTimer(c.Every)
	defer timer.Stop()
	var last time.Time
	for {
		began := time.Now()
		timer.Reset(c.Every)
		err := f.followOnce(ctx, feed, c, last)
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case errors.Is(err, ErrDead):
			return fmt.Errorf("bloom: Follow: %w", err)
		case err == nil:
			last = began
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timer.C:
		}
	}
}

// followOnce scans the marks that came since last, or the whole window if last is zero.
func (f *Filter) followOnce(ctx context.Context, feed *Feed, c FollowConfig, last time.Time) error {
	began := time.Now()
	age := f.slice * time.Duration(f.plan.Generations)
	if !last.IsZero() {
		age = min(age, f.instant(began).since(f.instant(last))+c.Overlap)
	}
	m := meter{began: began, progress: c.Progress}
	err := c.Scan(ctx, age, func(id [16]byte, age time.Duration) error {
		gen := floorDiv(f.clock(f.instant(time.Now()))-max(0, age), f.slice)
		if err := feed.Add(gen, id); err != nil {
			return err
		}
		return m.step(ctx)
	})
	if err == nil && last.IsZero() {
		err = feed.coverAll(feed.source.Seq)
	}
	if err == nil {
		err = feed.Through(began.Add(-c.Overlap))
	}
	m.end(err)
	return err
}
