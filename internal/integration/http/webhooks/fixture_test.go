// Package webhooks_test tests httpadapter/webhook with programs that are not ours: the official
// library of Standard Webhooks, openssl, Python, curl, and payloads that GitHub has sent.
package webhooks_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/httpadapter"
	"github.com/onceward/onceward/httpadapter/webhook"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

const senders = 8 // at a time, of one test

const month = 31 * 24 * time.Hour // above Stripe's horizon

var presets = map[string]func(...string) (webhook.Provider, error){
	"standard-webhooks": webhook.StandardWebhooks,
	"stripe":            webhook.Stripe,
	"github":            webhook.GitHub,
	"shopify":           webhook.Shopify,
	"slack":             webhook.Slack,
}

func provider(t testing.TB, name string, secrets ...string) webhook.Provider {
	t.Helper()
	p, err := presets[name](secrets...)
	require.NoError(t, err)
	return p
}

// fixture is a Runner over a real Redis, and where its keys are.
type fixture struct {
	httpadapter.Runner
	client redis.UniversalClient
	prefix string
}

func realRedis(t testing.TB) fixture {
	t.Helper()
	p := fixture{prefix: servertest.Prefix(t)}
	p.client = redistest.Client(t,
		&redis.Options{Addr: servertest.Redis(t), ReadTimeout: 30 * time.Second,
			WriteTimeout: 30 * time.Second})
	t.Cleanup(func() {
		if keys := p.keys(t); len(keys) > 0 {
			p.client.Del(context.Background(), keys...)
		}
	})
	store, err := redisadapter.New(t.Context(), p.client, redisadapter.Options{Prefix: p.prefix})
	require.NoError(t, err)
	d, err := dedup.New(store,
		dedup.Config{Namespace: "webhooks", Window: month, LeaseTTL: 30 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	p.Runner, err = httpadapter.Claimed(d)
	require.NoError(t, err)
	return p
}

// keys are all that begin with the prefix, by SCAN.
func (p fixture) keys(t testing.TB) (keys []string) {
	t.Helper()
	ctx := context.Background() // also when the test has ended
	list := p.client.Scan(ctx, 0, p.prefix+"*", 1000).Iterator()
	for list.Next(ctx) {
		keys = append(keys, list.Val())
	}
	require.NoError(t, list.Err())
	return keys
}

// inMemory returns a Runner over a store in memory, for tests of signatures.
func inMemory(t testing.TB) httpadapter.Runner {
	t.Helper()
	d, err := dedup.New(dedup.Memory(10_000),
		dedup.Config{Namespace: "webhooks", Window: month, LeaseTTL: 30 * time.Second})
	require.NoError(t, err)
	t.Cleanup(func() { _ = d.Close(context.Background()) })
	run, err := httpadapter.Claimed(d)
	require.NoError(t, err)
	return run
}

// site is a receiver on a server of net/http, with the effects it had.
type site struct {
	*httptest.Server
	mu      sync.Mutex
	effects map[string]int // by type and id
}

// serve has each delivery handled by effect, which may be nil, and counts those it accepts.
func serve(t testing.TB, run httpadapter.Runner, p webhook.Provider, effect webhook.Handler) *site {
	t.Helper()
	s := &site{effects: map[string]int{}}
	hook, err := webhook.New(run, p, func(ctx context.Context, d *webhook.Delivery) error {
		if effect != nil {
			if err := effect(ctx, d); err != nil {
				return err
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.effects[d.Type+" "+d.ID]++
		return nil
	}, webhook.Config{Endpoint: "integration"})
	require.NoError(t, err)
	mux := http.NewServeMux()
	mux.Handle("POST /hooks", hook)
	s.Server = httptest.NewServer(mux)
	t.Cleanup(s.Close)
	s.Client().Transport.(*http.Transport).MaxIdleConnsPerHost = senders
	return s
}

// had returns the effects so far.
func (s *site) had() map[string]int {
	s.mu.Lock()
	defer s.mu.Unlock()
	had := make(map[string]int, len(s.effects))
	for name, n := range s.effects {
		had[name] = n
	}
	return had
}

// total is how many effects there were.
func (s *site) total() (n int) {
	for _, times := range s.had() {
		n += times
	}
	return n
}
