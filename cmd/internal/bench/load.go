package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// remembered is how many of its finished keys a worker chooses duplicates from.
	remembered = 1024
	// pause is how long a worker rests after an error, at full speed: a server that refuses
	// everything is not asked a million times a second.
	pause = 10 * time.Millisecond
	// answerTime is what the last operations of a slice get for their answers.
	answerTime = 15 * time.Second
)

// message is one that arrives.
type message struct {
	key string
	// dup tells that its key is done already.
	dup bool
}

// work has the messages handled, and returns an error for each that was not, or was taken for what
// it is not; nil when all is well. It is called by several workers at once.
type work func(ctx context.Context, batch []message) []error

// load is how messages arrive.
type load struct {
	workers, batch int
	// dup is the share of duplicates.
	dup float64
	// rate is messages a second that are due, whether earlier ones are done or not; 0 is full
	// speed.
	rate float64
}

// crew sends the load to one side.
type crew struct {
	load
	name   string
	work   work
	kind   func(error) string
	all    []*worker
	number atomic.Int64 // of keys
}

// worker is one of a crew.
type worker struct {
	crew *crew
	// owed is how many duplicates are missing for the share.
	owed float64
	done []string // a ring
	at   int
	rand *rand.Rand
}

// newCrew names keys after a side, whose keys no other crew has.
func newCrew(l load, name string, do work, kind func(error) string) *crew {
	c := &crew{load: l, name: name, work: do, kind: kind}
	for range l.workers {
		pcg := rand.NewPCG(rand.Uint64(), rand.Uint64()) // no secret
		c.all = append(c.all, &worker{crew: c, rand: rand.New(pcg)})
	}
	return c
}

// fault is one kind of error.
type fault struct {
	count   int64
	example string
}

// tally is what a side has done.
type tally struct {
	fresh, dups int64
	// used is how many new keys have been sent, whatever has become of them.
	used       int64
	operations int64
	faults     map[string]*fault
	latency    histogram
	elapsed    time.Duration
	// unsent is how many messages that were due were not begun any more.
	unsent int64
	// full tells that the budget of keys was used up.
	full bool
	// lastFailed tells of the last operation of one worker.
	lastFailed bool
}

func newTally() *tally { return &tally{faults: map[string]*fault{}} }

func (t *tally) messages() int64 { return t.fresh + t.dups }

func (t *tally) perSecond() float64 {
	return float64(t.messages()) / max(t.elapsed.Seconds(), 1e-9)
}

func (t *tally) fail(kind, example string, n int64) {
	f := t.faults[kind]
	if f == nil {
		f = &fault{example: example}
		t.faults[kind] = f
	}
	f.count += n
}

// join adds what was done at the same time, or at another: elapsed is left to the caller.
func (t *tally) join(other *tally) {
	t.fresh += other.fresh
	t.dups += other.dups
	t.used += other.used
	t.operations += other.operations
	t.unsent += other.unsent
	t.full = t.full || other.full
	t.latency.join(&other.latency)
	for kind, f := range other.faults {
		t.fail(kind, f.example, f.count)
	}
}

// slice is a part of a run.
type slice struct {
	begun time.Time
	time  time.Duration
	// budget is how many new keys may still be used, tickets how many operations have been due.
	budget, tickets atomic.Int64
	// every is the time between two operations that are due; 0 at full speed.
	every float64
}

// run sends messages for a time, or until so many new keys have been used. Once ctx has ended it
// returns soon, and what has failed since is not counted.
func (c *crew) run(ctx context.Context, length time.Duration, budget int64) *tally {
	ctx, cancel := context.WithTimeout(ctx, 2*length+answerTime)
	defer cancel()
	s := &slice{begun: time.Now(), time: length}
	s.budget.Store(budget)
	if c.rate > 0 {
		s.every = float64(c.batch) / c.rate * float64(time.Second)
	}
	total := newTally()
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, w := range c.all {
		all.Go(func() {
			t := newTally()
			w.run(ctx, s, t)
			mu.Lock()
			defer mu.Unlock()
			total.join(t)
		})
	}
	all.Wait()
	total.elapsed = time.Since(s.begun)
	if c.rate > 0 && !total.full {
		total.elapsed = max(total.elapsed, length) // nothing more was due
	}
	return total
}

func (w *worker) run(ctx context.Context, s *slice, t *tally) {
	batch := make([]message, w.crew.batch)
	for !cancelled(ctx) {
		due, ok := s.next()
		if !ok {
			return
		}
		if s.every > 0 {
			wait(ctx, s.begun.Add(due))
			// Who is behind by a whole slice does not catch up: what was due counts, with the time
			// it has waited, and is not sent.
			if late := time.Since(s.begun); late > 2*s.time || ctx.Err() != nil {
				t.unsent += int64(len(batch))
				t.latency.add(late - due)
				continue
			}
		}
		if !w.fill(batch, s) {
			t.full = true
			return
		}
		w.handle(ctx, batch, s.begun.Add(due), t)
		if t.lastFailed && s.every == 0 {
			wait(ctx, time.Now().Add(pause))
		}
	}
}

// cancelled tells that nobody wants the rest: that the slice's own time for answers is over is an
// error that counts.
func cancelled(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// next is when the next operation is due, from the beginning of the slice. At full speed that is
// now.
func (s *slice) next() (due time.Duration, ok bool) {
	if s.every == 0 {
		due = time.Since(s.begun)
	} else {
		due = time.Duration(float64(s.tickets.Add(1)-1) * s.every)
	}
	return due, due < s.time
}

// wait returns at a time, or when ctx ends.
func wait(ctx context.Context, at time.Time) {
	left := time.Until(at)
	if left <= 0 {
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// fill chooses messages: a duplicate wherever one is missing and a key is done.
func (w *worker) fill(batch []message, s *slice) bool {
	var fresh int64
	for i := range batch {
		w.owed += w.crew.dup
		if w.owed >= 1 && len(w.done) > 0 {
			w.owed--
			batch[i] = message{w.done[w.rand.IntN(len(w.done))], true}
			continue
		}
		fresh++
		batch[i] = message{fmt.Sprintf("%s-%d", w.crew.name, w.crew.number.Add(1)), false}
	}
	return s.budget.Add(-fresh) >= 0
}

// handle has a batch done that was due at a time, and measures from there.
func (w *worker) handle(ctx context.Context, batch []message, due time.Time, t *tally) {
	errs := w.crew.work(ctx, batch)
	if cancelled(ctx) && errs != nil {
		return
	}
	t.operations++
	t.latency.add(time.Since(due))
	t.lastFailed = false
	for i, m := range batch {
		if !m.dup {
			t.used++
		}
		switch {
		case errs != nil && errs[i] != nil:
			t.lastFailed = true
			t.fail(w.crew.kind(errs[i]), errs[i].Error(), 1)
		case m.dup:
			t.dups++
		default:
			t.fresh++
			w.keep(m.key)
		}
	}
}

// keep remembers a key that is done.
func (w *worker) keep(key string) {
	if len(w.done) < remembered {
		w.done = append(w.done, key)
		return
	}
	w.done[w.at] = key
	w.at = (w.at + 1) % remembered
}
