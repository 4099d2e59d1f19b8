package owned

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/dedup/driver"
)

// Name is the name under which a Store claims the keys of its inner store:
// redisadapter.Options.WrappedBy must be this name.
const Name = "owned"

// ErrClosed is the answer of a Store after Close.
var ErrClosed = errors.New("owned: closed")

// Store is a [driver.Store] for partitions that have one owner at a time. It is safe for concurrent
// use.
type Store struct {
	client   redis.UniversalClient
	runner   *script.Runner
	inner    driver.Store
	opts     Options // complete; without the Secret
	members  members
	registry *registry
	born     time.Time        // times are counted from it
	wall     func() time.Time // the wall clock: tests set it

	table   *table
	met     func() // hook of tests: between the look at the table and what follows from it
	between func() // hook of tests: between making an entry and the look at the filter

	mu sync.RWMutex
	// the newest Ownership of each partition, even if it has been lost or released
	held   map[partitionKey]*Ownership
	taken  map[partitionKey]bool // somebody here is acquiring it
	closed bool
	wake   chan struct{} // to the goroutine that renews
	over   chan struct{} // closed when that goroutine has ended; nil while there is none

	working  sync.WaitGroup // renewals under way; the goroutine that renews begins them
	notifier notifier       // of Options.Observer.FilterState
}

// newStore needs complete options.
func newStore(client redis.UniversalClient, inner driver.Store, opts Options) *Store {
	s := &Store{
		client: client, runner: script.NewRunner(client), inner: inner, born: time.Now(),
		wall: time.Now,
		members: members{secret: [32]byte(derive("member", opts.Secret)),
			buckets: uint64(opts.buckets())},
		table: newTable(), held: make(map[partitionKey]*Ownership),
		taken: make(map[partitionKey]bool),
		wake:  make(chan struct{}, 1),
	}
	if hook := opts.Observer.FilterState; hook != nil {
		s.notifier.hook, opts.Observer.FilterState = hook, s.notifier.notify
	}
	s.opts, s.registry = opts, newRegistry(client, &opts)
	return s
}

// New returns a Store over inner, the store for the keys that need a claim of their own. It reads
// the record that [Init] has made. Without a record it returns [ErrNotInitialized], and with other
// settings than the record's [ErrOtherSettings]. It returns [ErrEvicts] if a server may evict keys,
// and a [*driver.InputError] for a nil client or inner, a client that reads from replicas, and a
// bad option.
func New(ctx context.Context, client redis.UniversalClient, inner driver.Store,
	opts Options) (*Store, error) {
	if ctx == nil {
		return nil, input("Context", "is nil")
	}
	if problem := script.ClientProblem(client); problem != "" {
		return nil, input("Client", problem)
	}
	if inner == nil {
		return nil, input("Inner", "is nil")
	}
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	if err := checkInner(inner, &opts); err != nil {
		return nil, err
	}
	s := newStore(client, inner, opts)
	if err := s.agree(ctx); err != nil {
		return nil, err
	}
	if o, ok := inner.(interface{ OpenFor(wrapper string) error }); ok {
		if err := o.OpenFor(Name); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// checkInner refuses an inner store that would refuse the ends that this Store passes on to it.
func checkInner(inner driver.Store, opts *Options) error {
	switch limits := driver.LimitsOf(inner); {
	case limits.Window != 0 && limits.Window != opts.Window:
		return input("Options.Window", fmt.Sprintf("is %v; Inner has one window for all keys, %v",
			opts.Window, limits.Window))
	case limits.MaxHold != 0 && limits.MaxHold < opts.Hold:
		return input("Options.Hold", fmt.Sprintf(
			"is %v; Inner keeps what is unfinished for %v at most", opts.Hold, limits.MaxHold))
	}
	return nil
}

// Limits are Options.Window and Options.Hold, which all keys have. The Store remembers of a
// finished key only that it is done.
func (s *Store) Limits() driver.Limits {
	return driver.Limits{Window: s.opts.Window, MaxHold: s.opts.Hold, NoResults: true,
		NoFailures: true}
}

// owner returns the Ownership of the partition that an origin names.
func (s *Store) owner(origin *driver.Origin) (*Ownership, error) {
	at := partitionKey{source: origin.Digest(), number: origin.Partition}
	s.mu.RLock()
	o := s.held[at]
	s.mu.RUnlock()
	switch {
	case o == nil:
		return nil, input("Origin", "names a partition that was never acquired here")
	case o.released.Load() || o.lostFor() != nil:
		return nil, errRemoteOwner
	}
	return o, nil
}

// reserve keeps other calls in this process from acquiring the same partition.
func (s *Store) reserve(o *Ownership) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := o.part.place()
	was := s.held[at]
	switch {
	case s.closed:
		return ErrClosed
	case s.taken[at]:
		return &HeldError{Remaining: s.opts.Lease} // at most: it is being acquired
	case was != nil && !was.released.Load() && was.lostFor() == nil:
		return &HeldError{Remaining: max(was.left()+margin(s.opts.Lease), 0)}
	}
	s.taken[at] = true
	return nil
}

func (s *Store) unreserve(o *Ownership) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.taken, o.part.place())
}

// hold begins to renew a partition and to load its filter.
func (s *Store) hold(o *Ownership) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	at := o.part.place()
	delete(s.taken, at)
	if s.closed {
		return ErrClosed
	}
	s.held[at] = o
	o.alongside(func() {
		defer close(o.settled)
		o.keepLoading()
	})
	if s.over == nil {
		s.over = make(chan struct{})
		go s.keepRenewing(s.over)
	}
	s.nudge()
	return nil
}

// nudge wakes the goroutine that renews.
func (s *Store) nudge() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Close releases every partition that is held, and waits for the goroutines that the Store began.
// Until ctx ends, it also waits for the observer to get the remaining events. So a hook that calls
// Close would wait for itself. It is idempotent; a partition that it could not release lapses.
// Requests are then answered as for partitions that were lost.
func (s *Store) Close(ctx context.Context) error {
	s.mu.Lock()
	s.closed = true
	over := s.over
	var all []*Ownership
	for _, o := range s.held {
		all = append(all, o)
	}
	s.mu.Unlock()
	errs := make([]error, len(all))
	var releasing sync.WaitGroup
	for i, o := range all {
		releasing.Go(func() { errs[i] = o.Release(ctx) })
	}
	releasing.Wait()
	s.nudge()
	if over != nil {
		<-over
		s.working.Wait()
	}
	if err := s.notifier.wait(ctx); err != nil {
		errs = append(errs, fmt.Errorf("owned: Close: telling the observer: %w", err))
	}
	return errors.Join(errs...)
}
