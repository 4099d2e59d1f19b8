package owned

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/onceward/onceward/contrib/owned/internal/script"
)

// saver knows which generations have a snapshot, and since when each of the others has been over.
type saver struct {
	mu    sync.Mutex
	saved map[int64]bool
	over  map[int64]time.Time // by generation: when head was heard to have passed it
}

// add notes that a generation has a complete snapshot.
func (v *saver) add(gen int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.saved == nil {
		v.saved = make(map[int64]bool)
	}
	v.saved[gen] = true
}

// has reports whether a generation has a complete snapshot.
func (v *saver) has(gen int64) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.saved[gen]
}

// due returns the generations to save, which are those that have been over for two leases. At least
// a lease ago, a renewal has moved head past them. So a failover to a replica that is less than a
// lease behind does not move head back to them. Nobody writes to a generation that head has passed,
// whatever clock a promoted server has.
func (v *saver) due(over []int64, lease time.Duration) (gens []int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	since := make(map[int64]time.Time, len(over))
	for _, gen := range over {
		at, known := v.over[gen]
		if !known {
			at = time.Now()
		}
		since[gen] = at
		if !v.saved[gen] && time.Since(at) >= 2*lease {
			gens = append(gens, gen)
		}
	}
	v.over = since
	return gens
}

// snapshotName names the snapshot of a generation.
func (o *Ownership) snapshotName(gen int64) string {
	return o.names.tag + ":" + strconv.FormatInt(gen, 10) + ":" + o.s.opts.KeyID
}

// save writes a snapshot of each generation that is over, folded and not saved yet. Snapshots only
// make the next load shorter, so an error has no other effect.
func (o *Ownership) save(ctx context.Context) error {
	if o.s.opts.Snapshots == nil {
		return nil
	}
	var errs []error
	for _, gen := range o.saver.due(o.overGenerations(), o.s.opts.Lease) {
		err := o.saveGeneration(ctx, gen)
		if err == nil {
			o.saver.add(gen)
			continue
		}
		errs = append(errs, fmt.Errorf("owned: snapshot of generation %d: %w", gen, err))
	}
	return errors.Join(errs...)
}

// overGenerations returns, in order, the generations of the filter that head has passed and whose
// sets are all folded.
func (o *Ownership) overGenerations() (gens []int64) {
	oldest, _, _, _ := o.filter.Where([16]byte{})
	o.mu.Lock()
	defer o.mu.Unlock()
	for gen, g := range o.sets {
		if gen >= oldest && gen < o.gen && g.Newest > 0 && g.Folded >= g.Newest {
			gens = append(gens, gen)
		}
	}
	slices.Sort(gens)
	return gens
}

// saveGeneration writes the snapshot of one generation. Only a closed snapshot proves anything to
// the process that loads it. Save decides at its beginning whether the snapshot is closed, so the
// partition must be ours by then. The snapshot covers everything up to the newest sequence number
// that a reply has given us. If a server has lost batch writes, its number is lower, and the
// snapshot is refused.
func (o *Ownership) saveGeneration(ctx context.Context, gen int64) error {
	if o.left() <= 0 {
		return errors.New("the partition's lease is over")
	}
	o.mu.Lock()
	seq := o.seq
	o.mu.Unlock()
	filter, feed := o.filter.Load(), o.feed.Load()
	if filter == nil || feed == nil {
		return errNoFilter
	}
	if err := feed.Covered(gen, seq); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := filter.Save(&b, gen); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, snapshotTimeout)
	defer cancel()
	stored, err := script.Within(ctx, func() error {
		return o.s.opts.Snapshots.Store(ctx, o.snapshotName(gen), o.snapshotKeep(gen), &b)
	})
	return errors.Join(err, stored)
}

// snapshotKeep returns how much longer the generation is in a filter.
func (o *Ownership) snapshotKeep(gen int64) time.Duration {
	slice := o.s.opts.slice()
	return max(time.Duration(gen+int64(o.s.opts.Slices)+2)*slice-o.serverClock(), slice)
}
