package redisadapter_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// TestLeftBehindKeepsItsCommands: a pipeline whose caller has gone still reads its replies into its
// commands. If later calls used these commands, they would get replies of other calls. The race
// detector finds that.
func TestLeftBehindKeepsItsCommands(t *testing.T) {
	const keys = 4
	var held atomic.Pointer[chan struct{}]
	var sets atomic.Int64
	fake := redistest.Fake(t, func(args []string) string {
		switch strings.ToUpper(args[0]) {
		case "PING":
			return "+PONG\r\n"
		case "INFO":
			return infoReply(nil)
		case "TIME":
			now := time.Now()
			return fmt.Sprintf("*2\r\n%s%s", redistest.Bulk(fmt.Sprint(now.Unix())),
				redistest.Bulk(fmt.Sprint(now.Nanosecond()/1000)))
		case "SET":
			sets.Add(1)
			if hold := held.Load(); hold != nil {
				<-*hold
			}
			return "$-1\r\n" // the key was absent
		}
		return redistest.Answer("absent", 0, 0, "")
	})
	fake.PoolSize = 32
	store, err := redisadapter.New(t.Context(), redistest.Client(t, fake), redisadapter.Options{})
	require.NoError(t, err)
	claim := func(ctx context.Context, first int) []driver.Answer {
		reqs := make([]driver.ClaimRequest, keys)
		for i := range reqs {
			reqs[i] = request(first + i)
		}
		return store.Claim(ctx, reqs)
	}
	sets.Store(0)
	hold := make(chan struct{})
	held.Store(&hold)
	ctx, cancel := context.WithCancel(t.Context())
	var left sync.WaitGroup
	for n := range 8 {
		left.Go(func() {
			for _, a := range claim(ctx, 100*n) {
				assert.Error(t, a.Err)
			}
		})
	}
	eventually(t, "they are under way", func() bool { return sets.Load() >= 8 })
	cancel()
	left.Wait()
	held.Store(nil)
	close(hold)
	for n := range 200 {
		for _, a := range claim(t.Context(), 10_000+10*n) {
			require.Equal(t, dedup.Acquired, a.Outcome, "%+v", a)
		}
	}
	eventually(t, "they end", func() bool { return store.Health().InFlight == 0 })
}
