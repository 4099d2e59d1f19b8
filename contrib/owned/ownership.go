package owned

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/onceward/onceward/bloom"
	"github.com/onceward/onceward/contrib/owned/internal/script"
)

// Errors of a partition; test with errors.Is.
var (
	// ErrLost: the partition is not ours any more, or its source now has more partitions than when
	// the partition was acquired. Acquire it again, with the new Partition.Count. It is the cause
	// with which Ownership.Context ends.
	ErrLost = errors.New("owned: partition lost")
	// ErrAmnesia: Redis has lost marks of the partition. Nobody can acquire it until an operator
	// has called [Init].
	ErrAmnesia = errors.New("owned: Redis has lost what it knew of the partition")
	// ErrCount: the source has had more partitions than Partition.Count says.
	ErrCount = errors.New("owned: fewer partitions than are on record")
	// ErrMapping: the source has another Partition.Mapping, and somebody holds a partition of it.
	// All owners use the same mapping; it can change only while nobody holds a partition.
	ErrMapping = errors.New("owned: the source has another mapping")
	// ErrReleased is the cause with which Ownership.Context ends after Release.
	ErrReleased = errors.New("owned: partition released")
)

// HeldError is the answer of Acquire when somebody else holds the partition.
type HeldError struct {
	// Remaining is how much longer the lease lasts, unless it is renewed.
	Remaining time.Duration
}

// Error implements error.
func (e *HeldError) Error() string {
	return fmt.Sprintf("owned: partition is held for another %v", e.Remaining)
}

// partitionRecord is a partition that is on record.
type partitionRecord struct {
	partitionKey
	names
}

// remoteState is what the other partitions know of a member.
type remoteState struct {
	done bool // marked
	live bool // begun under an owner that lives
	runs int  // number of dead epochs that have it in a begin
}

// Ownership is the right to a partition, from Acquire to Release or to its loss. Its methods may be
// called from any goroutine.
type Ownership struct {
	s     *Store
	part  Partition
	names names
	token [16]byte

	ctx     context.Context
	end     context.CancelCauseFunc
	working sync.WaitGroup // the loader, and what runs next to renewals
	settled chan struct{}  // closed when the loader has ended

	valid  atomic.Pointer[instant] // until when we hold the partition
	filter lossy
	feed   atomic.Pointer[bloom.Feed]
	loaded atomic.Bool

	clock    atomic.Int64 // the server's clock as last heard, in ms since 1970
	inFlight atomic.Int64 // keys that began without a claim of the inner store, and have not ended
	stats    counters
	loading  loading
	saver    saver

	foldAtOnce int // tests set it; 0 for the constant

	again  sync.Mutex // held by the caller that acquires again
	gaveUp bool       // under again: Release was sent
	// again guards this: the last epoch that acquiring again has given us, used or not
	given    uint64
	unlearnt bool // under again: the last try to acquire again got no answer

	gate     sync.RWMutex // held to read from before a begin until it is answered; Release takes it
	released atomic.Bool  // nothing begins any more
	renewing atomic.Bool  // a renewal is under way
	tending  atomic.Bool  // sets are folded, or snapshots saved
	tended   time.Duration
	reported time.Duration // when the observer was told last

	mu          sync.Mutex // taken while a shard's mutex is held, never the other way round
	epoch       uint64
	seq         uint64 // the largest heard
	mapver      uint64
	sharedUntil time.Duration // of the server's clock, since 1970
	forgets     uint64
	gen         int64 // the newest generation heard of
	sets        map[int64]*generation
	fields      uint64              // number of the last begin
	begins      map[*begin]struct{} // begins of this Ownership with keys that have not ended
	// the fields whose keys have all ended; the next batch write removes them
	over      []string
	suspects  map[int64]*openAttempt // by member
	suspected atomic.Int64           // the number of suspects
	recalled  uint64                 // the value of forgets when run was read last
	head      *script.State
	why       error // why the ownership is over; nil while it is not
}

// generation is what the owner knows of the sets of one generation.
type generation struct {
	script.Gen
	written int                     // members that we have sent to the newest fresh set
	folding bool                    // buckets may have members
	sent    map[uint64]*sentMembers // what is in the fresh sets that we began, by their number
}

// Context ends when the partition is lost (its cause is then [ErrLost], or [ErrAmnesia]) or
// released ([ErrReleased]). Handlers of the partition's messages run under it.
func (o *Ownership) Context() context.Context { return o.ctx }

// keys returns the keys that every script of the partition needs.
func (o *Ownership) keys() script.Keys {
	return script.Keys{Head: o.names.head, Own: o.names.own, Run: o.names.run}
}

// self describes this owner to the scripts, as far as it is known by now.
func (o *Ownership) self() script.Owner {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.selfLocked()
}

func (o *Ownership) selfLocked() script.Owner {
	return script.Owner{
		Token: o.token, Epoch: o.epoch, MapVersion: o.mapver, Seq: o.seq,
		Lease: o.s.opts.Lease, Slice: o.s.opts.slice(), Keep: o.s.opts.Window + o.s.opts.Hold,
	}
}

// noteReply notes what every reply says.
func (o *Ownership) noteReply(r *script.Reply) {
	if r.Err != nil || r.Answer == script.AnswerAmnesia {
		return
	}
	now := r.Now.Milliseconds()
	for {
		was := o.clock.Load()
		if was >= now || o.clock.CompareAndSwap(was, now) {
			break
		}
	}
	defer o.noteMap(r.MapVersion)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sharedUntil = max(o.sharedUntil, r.SharedUntil)
	o.forgets = max(o.forgets, r.Forgets)
	// The server's clock counts, too, because the filter can be fed only into a generation that it
	// has, and the generation in head may be an old one.
	o.gen = max(o.gen, r.Gen, int64(r.Now/o.s.opts.slice()))
	if r.Epoch == o.epoch && r.Answer != script.AnswerBehind {
		o.seq = max(o.seq, r.Seq)
	}
}

// prolong notes that the partition is ours for a lease minus its margin, counted from the time
// sent.
func (o *Ownership) prolong(sent instant) {
	lease := o.s.opts.Lease
	until := sent.add(lease - margin(lease))
	for {
		was := o.valid.Load()
		if was != nil && !was.before(until) {
			return
		}
		if o.valid.CompareAndSwap(was, &until) {
			break
		}
	}
	if o.loaded.Load() {
		o.openFeed()
	}
}

// openFeed tells the filter that we feed it every mark until the lease ends.
func (o *Ownership) openFeed() {
	if feed := o.feed.Load(); feed != nil {
		_ = feed.Open(time.Now().Add(o.left())) // a dead feed opens nothing
	}
}

// margin is how long before the end of its lease an owner stops by its own clock, as in package
// dedup.
func margin(lease time.Duration) time.Duration { return lease/100 + 2*time.Millisecond }

// lose ends the ownership. From then on no key of the partition is New here, and its handlers are
// canceled.
func (o *Ownership) lose(why error) {
	o.mu.Lock()
	first := o.why == nil
	if first {
		o.why = why
	}
	o.mu.Unlock()
	if !first {
		return
	}
	if feed := o.feed.Load(); feed != nil {
		feed.Lost(bloom.Lost)
	}
	o.end(why)
	o.letGo()
	if !errors.Is(why, ErrReleased) {
		o.stats.lost.Add(1)
		o.s.opts.Logger.Warn("owned: partition lost", "source", o.part.Source, "partition",
			o.part.Number, "why", why)
	}
}

// alongside runs f next to the partition's work, unless the ownership is over. Release waits for f.
func (o *Ownership) alongside(f func()) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.why == nil {
		o.working.Go(f)
	}
}

// lostFor returns why the ownership is over, or nil.
func (o *Ownership) lostFor() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.why
}

// isShared reports whether every key needs a claim of the inner store.
func (o *Ownership) isShared() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.sharedUntil > time.Duration(o.clock.Load())*time.Millisecond
}
