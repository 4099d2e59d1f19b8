package telemetry_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/telemetry"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/redisadapter"
)

// Only some layouts of Redis link a duplicate to its original. All of them link a retry.
func TestLinksOfLayouts(t *testing.T) {
	client := redis.NewClient(&redis.Options{Addr: servertest.Redis(t)})
	defer func() { _ = client.Close() }()
	for _, c := range []struct {
		name             string
		layout           redisadapter.Layout
		seenOnly, linked bool
	}{
		{"full", redisadapter.Full, false, true},
		{"full without results", redisadapter.Full, true, true},
		{"compact", redisadapter.Compact, true, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			opts := redisadapter.Options{Prefix: servertest.Prefix(t), Layout: c.layout}
			if c.layout == redisadapter.Compact {
				opts.Secret, opts.Window, opts.ExpectedKeys =
					[]byte("0123456789abcdef0123456789abcdef"), time.Hour, 1000
			}
			store, err := redisadapter.New(t.Context(), client, opts)
			require.NoError(t, err)
			p := newProcess(t, store, func(cfg *dedup.Config) {
				cfg.Window, cfg.SeenOnly = time.Hour, c.seenOnly
			})
			for _, fails := range []bool{true, false, false} {
				_, _ = telemetry.Do(t.Context(), p.tracer, p.d, secretKey,
					func(context.Context) (struct{}, error) {
						if fails {
							return struct{}{}, errSecret
						}
						return struct{}{}, nil
					})
			}
			calls := p.whole()
			wantLink(t, calls[1], calls[0])
			assert.Equal(t, c.linked, len(calls[2].Links()) == 1, "%s has a link",
				describe(calls[2]))
			if c.linked {
				wantLink(t, calls[2], calls[0])
			}
		})
	}
}
