package owned

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/onceward/onceward/contrib/owned/internal/script"
)

// load loads the filter; see loader. It opens the feed.
func (o *Ownership) load(ctx context.Context) error {
	l := o.loader()
	if l.filter == nil || l.feed == nil {
		return errNoFilter
	}
	began := time.Now()
	err := l.load(ctx)
	switch {
	case err == nil:
		o.s.opts.Logger.Info("owned: loaded", "source", o.part.Source, "partition", o.part.Number,
			"members", o.loading.members.Load(), "took", time.Since(began))
	case errors.Is(err, ErrAmnesia):
		err = o.writeLost(ctx, err)
	}
	return err
}

func (o *Ownership) loader() *loader {
	opts := &o.s.opts
	return &loader{
		reader: reader{o.s.client}, names: &o.names, buckets: opts.buckets(), slice: opts.slice(),
		keep:   opts.Window + opts.Hold,
		filter: o.filter.Load(), feed: o.feed.Load(), name: o.sourceName(), epoch: o.self().Epoch,
		clock: o.serverClock, hear: o.hearClock, open: o.openFeed,
		first: o.head, snapshots: opts.Snapshots, snapshotName: o.snapshotName, log: opts.Logger,
		progress: &o.loading, saver: &o.saver,
	}
}

// hearClock asks the server for its clock. It ignores the rest of the answer, because the next
// answer repeats it.
func (o *Ownership) hearClock(ctx context.Context) error {
	reply := o.s.send(ctx, script.NewAsk(o.keys(),
		&script.Ask{Epoch: o.self().Epoch}))[0]
	if reply.Err != nil {
		return fmt.Errorf("owned: load: %w", reply.Err)
	}
	o.noteReply(&reply)
	return nil
}

// writeLost writes "lost" into head, so that nobody acquires the partition. Otherwise every later
// owner would work until its own load finds the loss. If writing fails, the error is not
// ErrAmnesia, and the load begins again.
func (o *Ownership) writeLost(ctx context.Context, amnesia error) error {
	o.s.opts.Logger.Error(
		"owned: Redis has lost marks: nobody acquires the partition until Init was called",
		"source", o.part.Source, "partition", o.part.Number, "error", amnesia)
	reply := o.s.send(ctx, script.NewRemap(o.keys(),
		script.Remap{MapVersion: o.self().MapVersion, Lost: true}))[0]
	switch {
	case reply.Err != nil:
		return fmt.Errorf("owned: load: %s; writing that down: %w", amnesia.Error(), reply.Err)
	case reply.Answer != script.AnswerMapped && reply.Answer != script.AnswerAmnesia:
		// amnesia means that there is no head, so nobody can acquire the partition anyway
		return fmt.Errorf("owned: load: %s; writing that down: script answered %q", amnesia.Error(),
			reply.Answer)
	}
	return amnesia
}
