package redisadapter_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// TestNewerRecordIsNeverRunAgain: this version cannot know whether the record of a later version
// means done. It returns an error, runs nothing, and does not change the record.
func TestNewerRecordIsNeverRunAgain(t *testing.T) {
	eachLayout(t, func(t *testing.T, layout redisadapter.Layout) {
		redistest.Each(t, func(t *testing.T, b redistest.Backend) {
			store, err := redisadapter.New(t.Context(), b.Client, layoutOptions(b.Prefix, layout))
			must(t, err)
			d, err := dedup.New(store, dedup.Config{
				Namespace: "newer", Window: time.Hour, LeaseTTL: 30 * time.Second,
				SeenOnly: seenOnly(store),
			})
			must(t, err)
			defer func() { must(t, d.Close(context.Background())) }()
			id, err := driver.NewID("newer", "", "k")
			must(t, err)
			key := redisadapter.Key(store, id)
			for _, name := range redisadapter.Goldens(t) {
				newer := []byte(redisadapter.Golden(t, name))
				newer[0]++
				must(t, b.Client.Set(t.Context(), key, string(newer), time.Hour).Err())
				_, err := dedup.Do(t.Context(), d, "k", func(context.Context) (struct{}, error) {
					t.Errorf("%s of the next version was run", name)
					return struct{}{}, nil
				})
				assert.ErrorIs(t, err, driver.ErrUnreadable, "%s of the next version", name)
				assert.False(t, dedup.CanAck(err), "%s of the next version: %v", name, err)
				assert.False(t, dedup.CanRetry(err), "%s of the next version: %v", name, err)
				assert.False(t, dedup.OutcomeUnknown(err), "%s of the next version: %v", name, err)
				after := b.Client.Get(t.Context(), key).Val()
				assert.Equal(t, string(newer), after,
					"%s of the next version was overwritten by %x", name, after)
			}
			must(t, b.Client.Del(t.Context(), key).Err())
		})
	})
}
