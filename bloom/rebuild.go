package bloom

import (
	"context"
	"fmt"
	"time"
)

// progressEvery is how many ids lie between two calls of a Progress function.
const progressEvery = 1 << 14

// Progress says how far Rebuild or a scan of Follow is.
type Progress struct {
	Keys    uint64        // fed by now
	Elapsed time.Duration // since the scan began
	Done    bool          // it is the last call for this scan
	Err     error         // what the scan failed with
}

// Rebuild begins a Feed and covers all generations with what scan yields: the id of every mark
// within the window that the source has, and the generation that it belongs to. From the call on,
// every mark must pass Add before it is sent, and nobody else may write marks. The Feed that
// Rebuild returns can be opened. scan must stop when its context ends or yield fails, and return
// that error. Rebuild calls progress, which may be nil, now and then and at the end. When scan
// fails, or ctx ends, the Feed is lost and nothing is New.
func (f *Filter) Rebuild(ctx context.Context, source Source,
	scan func(ctx context.Context, yield func(gen int64, id [16]byte) error) error,
	progress func(Progress),
) (*Feed, error) {
	if err := source.check(); err != nil {
		return nil, err
	}
	feed := f.Begin(source)
	m := meter{began: time.Now(), progress: progress}
	err := scan(ctx, func(gen int64, id [16]byte) error {
		if err := feed.Add(gen, id); err != nil {
			return err
		}
		return m.step(ctx)
	})
	if err == nil {
		err = context.Cause(ctx)
	}
	if err == nil {
		err = feed.coverAll(source.Seq)
	}
	m.end(err)
	if err != nil {
		feed.Lost(Lost)
		return nil, fmt.Errorf("bloom: Rebuild: %w", err)
	}
	return feed, nil
}

// coverAll covers all generations that are alive.
func (fd *Feed) coverAll(through uint64) error {
	fd.f.at(fd.f.instant(time.Now()))
	return fd.claim(func(t *table) *table {
		for _, g := range t.gens {
			t = t.cover(g.index, through)
		}
		return t
	})
}

// meter counts the ids of a scan.
type meter struct {
	keys     uint64
	began    time.Time
	progress func(Progress)
}

func (m *meter) step(ctx context.Context) error {
	if m.keys++; m.keys%progressEvery != 0 {
		return nil
	}
	m.report(Progress{})
	return context.Cause(ctx)
}

func (m *meter) end(err error) { m.report(Progress{Done: true, Err: err}) }

func (m *meter) report(p Progress) {
	if m.progress != nil {
		p.Keys, p.Elapsed = m.keys, time.Since(m.began)
		m.progress(p)
	}
}
