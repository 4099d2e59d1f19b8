package redis_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// layout is one way to keep claims and records, as a user would configure it.
type layout struct {
	name string
	// options of the store, but for its Prefix.
	options redisadapter.Options
	// config changes what every Deduper of these tests has in common; nil changes nothing.
	config func(*dedup.Config)
	// result is recorded with every completion; nil where the layout keeps none.
	result []byte
	// survives says that a promotion may forget nothing that was acknowledged.
	survives bool
}

// layouts are all of them; every test of this package runs over each.
var layouts = []layout{
	{name: "full", result: []byte("receipt")},
	{name: "full_seen_only", config: seenOnly},
	{name: "compact", options: members, config: seenOnly},
}

func seenOnly(c *dedup.Config) { c.SeenOnly = true }

// members are the options of the layout that keeps finished keys in sets. window is that of every
// Deduper of these tests. A load has about as many keys as are expected.
var members = redisadapter.Options{Layout: redisadapter.Compact,
	Secret: []byte("a secret of these tests"), Window: window, ExpectedKeys: 20_000}

// window is that of every Deduper, because the layout that keeps finished keys in sets has one
// window for all.
const window = time.Hour

// eachLayout runs test as a subtest for every layout, all at the same time.
func eachLayout(t *testing.T, test func(t *testing.T, l layout)) {
	t.Helper()
	for _, l := range layouts {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			test(t, l)
		})
	}
}

// deduper returns a Deduper of this layout, with a client and a configuration.
func (l layout) deduper(t *testing.T, client redis.UniversalClient,
	cfg dedup.Config) *dedup.Deduper {
	t.Helper()
	options := l.options
	options.Prefix = servertest.Prefix(t)
	return l.sharing(t, client, cfg, options)
}

// sharing is like deduper for one of several that work on the same keys.
func (l layout) sharing(t *testing.T, client redis.UniversalClient, cfg dedup.Config,
	options redisadapter.Options) *dedup.Deduper {
	t.Helper()
	store, err := redisadapter.New(t.Context(), client, options)
	require.NoError(t, err)
	cfg.Namespace = "topology"
	if l.config != nil {
		l.config(&cfg)
	}
	d, err := dedup.New(store, cfg)
	require.NoError(t, err)
	return d
}
