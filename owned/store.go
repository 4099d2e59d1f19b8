package owned

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redisscript"
)

// ErrClosed is the answer of a Store after Close.
var ErrClosed = errors.New("owned: closed")

// Store is a [dedup.Store] for partitions that have one owner at a time. It is safe for concurrent use.
type Store struct {
	client   redis.UniversalClient
	runner   *redisscript.Runner
	inner    dedup.Store
	opts     Options // complete; without the Secret
	members  members
	registry *registry
	born     time.Time // monotonic times are counted from it

	mu     sync.Mutex
	held   map[place]*Ownership // the newest of each partition, also when it has been lost or released
	closed bool
}

// newStore is for options that are complete.
func newStore(client redis.UniversalClient, inner dedup.Store, opts Options) *Store {
	s := &Store{
		client: client, runner: redisscript.NewRunner(client), inner: inner, opts: opts, born: time.Now(),
		members:  members{secret: [32]byte(derive("member", opts.Secret)), buckets: uint64(opts.buckets())},
		registry: newRegistry(client, &opts),
		held:     make(map[place]*Ownership),
	}
	return s
}

// New returns a Store over inner, which keeps the claims that cannot do without one. It looks at the
// record that [Boot] has made: without it the answer is [ErrNotBooted], and other settings than its are
// [ErrOtherSettings]. A server that may evict keys is [ErrEvicts]. A nil client or inner, one that reads
// from replicas, and a bad option, are a [*dedup.InputError].
func New(ctx context.Context, client redis.UniversalClient, inner dedup.Store, opts Options) (*Store, error) {
	if ctx == nil {
		return nil, input("Context", "is nil")
	}
	if problem := redisscript.ClientProblem(client); problem != "" {
		return nil, input("Client", problem)
	}
	if inner == nil {
		return nil, input("Inner", "is nil")
	}
	opts, err := opts.complete()
	if err != nil {
		return nil, err
	}
	s := newStore(client, inner, opts)
	if err := s.agree(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// SeenOnly reports that of a finished key only that is remembered.
func (s *Store) SeenOnly() bool { return true }
