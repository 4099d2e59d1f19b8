package owned

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/dedup"
)

// Errors of a prefix; test with errors.Is.
var (
	// ErrNotInitialized: the prefix has no map record. Either this is the first start of a
	// deployment, and [Init] was forgotten, or Redis has lost everything. Only the operator can
	// tell which.
	ErrNotInitialized = errors.New("owned: the prefix was not initialized")
	// ErrOtherSettings: the marks of the prefix were made with different options. The text names
	// them.
	ErrOtherSettings = errors.New("owned: the prefix has other settings")
)

// registry reads and writes the map record of a prefix.
type registry struct {
	client   redis.UniversalClient
	runner   *script.Runner
	prefix   string
	key      string
	settings mapSettings
	batch    int32 // partitions that hear of a change in one pipeline

	log   *slog.Logger
	state func(dedup.Event) // Observer.FilterState, may be nil

	mu    sync.Mutex
	known map[string]mapSource // the last steady line of each source
	told  map[string]uint64    // the version of each source that was logged last

	sharing chan struct{}        // a lock with room for one call of Misplaced
	shared  map[string]extension // by source; guarded by sharing
}

// newRegistry needs complete options, including the Secret.
func newRegistry(client redis.UniversalClient, o *Options) *registry {
	return &registry{
		client: client, runner: script.NewRunner(client), prefix: o.Prefix,
		key: mapKey(o.Prefix), batch: remapBatch, log: o.Logger, state: o.Observer.FilterState,
		known: make(map[string]mapSource), told: make(map[string]uint64),
		sharing: make(chan struct{}, 1), shared: make(map[string]extension),
		settings: mapSettings{
			secret: hex.EncodeToString(derive("map", o.Secret)[:8]), keyID: o.KeyID,
			window: script.Millis(o.Window), hold: script.Millis(o.Hold),
			slices: o.Slices, buckets: o.buckets(),
		},
	}
}

// read returns the record and its text, or nil and "" when there is no record. One round trip.
func (r *registry) read(ctx context.Context) (*mapRecord, string, error) {
	type got struct {
		text string
		err  error
	}
	g, err := script.Within(ctx, func() (g got) {
		g.text, g.err = r.client.Get(ctx, r.key).Result()
		return g
	})
	if err = errors.Join(err, g.err); errors.Is(err, redis.Nil) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("owned: reading %s: %w", r.key, err)
	}
	m, err := r.check(g.text)
	return m, g.text, err
}

// check reads the text and compares its settings with ours.
func (r *registry) check(text string) (*mapRecord, error) {
	m, err := readMap(text)
	if err != nil {
		return nil, fmt.Errorf("owned: %s: %w", r.key, err)
	}
	if difference := m.settings.differ(&r.settings); difference != "" {
		return nil, fmt.Errorf("%w: of %s, %s", ErrOtherSettings, r.key, difference)
	}
	return m, nil
}

// swap replaces the record if it still has the text that was read, or still does not exist for "".
// It reports whether it has replaced the record. If not, the caller reads the record again. One
// round trip.
func (r *registry) swap(ctx context.Context, text string, next *mapRecord) (bool, error) {
	value := next.String()
	if len(value) > maxMap {
		return false, fmt.Errorf(
			"owned: %s would have %d bytes, at most %d are allowed: too many sources", r.key,
			len(value), maxMap)
	}
	swapped, err := r.runner.Swap(ctx, r.key, text, value)
	if err != nil {
		return false, fmt.Errorf("owned: writing %s: %w", r.key, err)
	}
	return swapped, nil
}

// see notes the line of a source: it keeps a steady line, and logs a change that somebody else has
// begun.
func (r *registry) see(source string, s mapSource) {
	r.mu.Lock()
	was, known := r.known[source]
	if !s.changing && s.version >= was.version {
		r.known[source] = s
	}
	r.mu.Unlock()
	if known && s.version > was.version {
		r.logRemap(source, was, s)
	}
}

// firstTo reports whether the caller is the first here to see this version of the map. If so, the
// caller must log it.
func (r *registry) firstTo(source string, version uint64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if version <= r.told[source] {
		return false
	}
	r.told[source] = version
	return true
}

// current returns the line of a source as it was read last. The line may be outdated, which shows
// when a partition answers with the version that it knows.
func (r *registry) current(source string) mapSource {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.known[source]
}
