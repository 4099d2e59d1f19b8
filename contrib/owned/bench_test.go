package owned

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// BenchmarkCycle is a batch of new keys, claimed and finished, next to the two plain commands a key
// that such a cycle takes at least without an owner.
func BenchmarkCycle(b *testing.B) {
	const batch = 256
	b.Run("raw", func(b *testing.B) {
		back := redistest.Open(b, "redis")
		var n uint64
		for b.Loop() {
			for _, done := range []bool{false, true} {
				pipe := back.Client.Pipeline()
				for i := range batch {
					key := fmt.Sprintf("%s:%020d", back.Prefix, n+uint64(i))
					if done {
						pipe.Do(context.Background(), "set", key,
							"0123456789abcdef0123456789abcdef", "px", 60000)
					} else {
						pipe.Do(context.Background(), "set", key,
							"0123456789abcdef0123456789abcdef", "nx", "get", "px", 30000)
					}
				}
				_, _ = pipe.Exec(context.Background())
			}
			n += batch
		}
		perKey(b, batch)
	})
	b.Run("claim,finish", func(b *testing.B) {
		s, _ := benchStore(b)
		reqs, changes := make([]driver.ClaimRequest, batch), make([]driver.Finish, batch)
		n := start()
		for b.Loop() {
			n = fill(s, reqs, changes, n)
			got := s.Claim(b.Context(), reqs)
			for i := range got {
				require.Equal(b, dedup.Acquired, got[i].Outcome)
				changes[i].Fence = got[i].Record.Fence
			}
			s.Recycle(got)
			finished(b, s, s.Finish(b.Context(), changes))
		}
		perKey(b, batch)
	})
	b.Run("finishclaim", func(b *testing.B) {
		s, o := benchStore(b)
		reqs, changes := make([]driver.ClaimRequest, batch), make([]driver.Finish, batch)
		other := make([]driver.Finish, batch)
		n := start()
		n = fill(s, reqs, changes, n)
		s.Recycle(s.Claim(b.Context(), reqs))
		for b.Loop() {
			n = fill(s, reqs, other, n)
			ended, claimed := s.FinishClaim(b.Context(), changes, reqs)
			finished(b, s, ended)
			s.Recycle(claimed)
			changes, other = other, changes
		}
		perKey(b, batch)
		st := o.Stats()
		assert.GreaterOrEqual(b, st.Saved, st.New*99/100)
	})
}

func perKey(b *testing.B, batch int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*batch), "ns/key")
}

func finished(b *testing.B, s *Store, got []driver.Answer) {
	for i := range got {
		require.True(b, got[i].Held, "%+v", got[i])
	}
	s.Recycle(got)
}

func start() uint64 {
	var seed [8]byte
	_, _ = rand.Read(seed[:])
	return binary.BigEndian.Uint64(seed[:])
}

// fill makes the next keys.
func fill(s *Store, reqs []driver.ClaimRequest, changes []driver.Finish, n uint64) uint64 {
	origin := driver.Origin{Source: "group/topic", Partition: 3, Generation: 1}
	until := time.Now().Add(time.Minute)
	for i := range reqs {
		n++
		var id driver.ID
		binary.LittleEndian.PutUint64(id[:], n*0x9e3779b97f4a7c15)
		binary.LittleEndian.PutUint64(id[8:], n)
		token := driver.Token(id)
		reqs[i] = driver.ClaimRequest{ID: id, Token: token, Lease: 10 * time.Second,
			Hold:   time.Hour,
			Origin: origin}
		changes[i] = driver.Finish{
			ID: id, Token: token, Attempt: 1, State: driver.StateSucceeded, Lease: 10 * time.Second,
			Hold: time.Hour, Window: s.opts.Window, EffectApplied: true, Until: until,
			Origin: origin,
		}
	}
	return n
}

func benchStore(b *testing.B) (*Store, *Ownership) {
	back := redistest.Open(b, "redis")
	inner, err := redisadapter.New(b.Context(), back.Client.(*redis.Client),
		redisadapter.Options{Prefix: back.Prefix + "-in", WrappedBy: Name})
	require.NoError(b, err)
	opts := Options{
		Prefix: back.Prefix, Secret: []byte("0123456789abcdef"), Window: 24 * time.Hour,
		Hold: time.Hour, Lease: 30 * time.Second, ExpectedKeys: 10_000_000,
	}
	require.NoError(b, Init(b.Context(), back.Client, opts))
	s, err := New(b.Context(), back.Client, inner, opts)
	require.NoError(b, err)
	b.Cleanup(func() { _ = s.Close(context.Background()) })
	o, err := s.Acquire(b.Context(),
		Partition{Source: "group/topic", Number: 3, Count: 8, Generation: 1})
	require.NoError(b, err)
	o.working.Wait() // for the loader
	return s, o
}
