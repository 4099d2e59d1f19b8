package kafka_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/kafkaadapter"
)

// The store refuses, or executes and does not answer, while members work: nothing new is
// handled, nothing is committed that is not on record, the partitions are paused, and
// everything is handled when the store is back.
func TestStoreIsDown(t *testing.T) { eachFlavor(t, storeIsDown) }

func storeIsDown(t *testing.T, f flavor) {
	for _, c := range []struct {
		name string
		trouble
	}{
		{"gone", trouble{refuse: errGone}},
		{"answers are lost", trouble{lose: errGone}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := f.scene(t, 3, 2).nobodyDies()
			store := s.troubled()
			storeGoesDown(t, s, func() { store.set(c.trouble) }, func() { store.set(trouble{}) })
		})
	}
}

// storeGoesDown calls down, and later up, while a member works.
func storeGoesDown(t *testing.T, s *scene, down, up func()) {
	const half = outageMessages / 2
	// The lease is longer than the outage: an effect that has happened can still be recorded.
	m := s.join(brief, func(mc *memberConfig) {
		mc.lease, mc.Tuning.Workers, mc.seenOnly = 30*time.Second, 2, true
	})
	produce := func(from int) {
		for p := range int32(2) {
			s.produce(numbered(p, 10_000*int(p)+from, half/2)...)
		}
	}
	produce(0)
	eventually(t, 20*time.Second, func() (bool, string) {
		return s.totalEffects() > half/10, fmt.Sprint(s.totalEffects(), " effects")
	})
	down()
	produce(half)
	eventually(t, 20*time.Second, func() (bool, string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.paused > 0, "not paused"
	})
	assert.NotEqual(t, int64(2*half), settle(t, m.began.Load),
		"everything was handled in spite of the outage")
	up()
	s.wantAll(30*time.Second, m)
}

// The store is away for longer than the leases. A message that had its effect meanwhile is recorded
// when the store is back, and does not run again.
func TestOutageLongerThanTheLease(t *testing.T) { eachFlavor(t, outageLongerThanTheLease) }

func outageLongerThanTheLease(t *testing.T, f flavor) {
	const n, lease = 20, time.Second
	s := f.scene(t, 3, 1)
	store := s.troubled()
	s.produce(numbered(0, 0, n)...)
	var inside counter
	down := make(chan struct{})
	m := s.join(func(ctx context.Context, _ *kafkaadapter.Message) error {
		if err := inside.waitFor(ctx, n); err != nil {
			return err
		}
		<-down
		return nil
	}, func(mc *memberConfig) { mc.lease = lease })
	eventually(t, 10*time.Second, func() (bool, string) {
		return m.running.Load() == n, fmt.Sprint(m.running.Load(), " handlers run")
	})
	store.set(trouble{refuse: errGone})
	close(down)
	<-time.After(3 * lease)
	assert.Zero(t, s.committed(0), "committed while nothing could be recorded")
	store.set(trouble{})
	s.wantAll(20*time.Second, m)
}

// The same as TestStoreIsDown, with Redis: it is gone, it loads its data, it has become a replica,
// or it is full.
func TestRedisIsDown(t *testing.T) {
	for _, c := range []struct {
		name     string
		down, up func(*troubledRedis)
	}{
		{"gone", func(r *troubledRedis) { r.gone(true) }, func(r *troubledRedis) { r.gone(false) }},
		{"loading", answering(refuseAll("LOADING Redis is loading the dataset in memory")),
			answering(nil)},
		{"read-only", answering(
			refuseWrites("READONLY You can't write against a read only replica.")), answering(nil)},
		{"full", answering(refuseWrites("OOM command not allowed when used memory > 'maxmemory'.")),
			answering(nil)},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := newScene(t, 1, 2).nobodyDies()
			r := s.redis()
			storeGoesDown(t, s, func() { c.down(r) }, func() { c.up(r) })
		})
	}
}

func answering(hook func(string) string) func(*troubledRedis) {
	return func(r *troubledRedis) { r.answer(hook) }
}

// The store is slow, or comes and goes: everything is still handled once.
func TestStoreIsUnsteady(t *testing.T) { eachFlavor(t, storeIsUnsteady) }

func storeIsUnsteady(t *testing.T, f flavor) {
	for _, c := range []struct {
		name string
		turn []trouble // one after the other
	}{
		{"slow", []trouble{{delay: 30 * time.Millisecond}}},
		{"flapping", []trouble{{refuse: errGone}, {}, {lose: errGone}, {}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			const n = 200
			s := f.scene(t, 3, 2).nobodyDies()
			store := s.troubled()
			long := func(mc *memberConfig) { mc.lease = 30 * time.Second }
			a, b := s.join(brief, long), s.join(brief, long)
			s.wantMembers(2)
			for p := range int32(2) {
				s.produce(numbered(p, 10_000*int(p), n)...)
			}
			s.produce(numbered(0, 10_000, n/2)...) // known in the other partition
			tick := time.NewTicker(50 * time.Millisecond)
			defer tick.Stop()
			for i := range 40 {
				store.set(c.turn[i%len(c.turn)])
				<-tick.C
			}
			store.set(trouble{})
			s.wantAll(30*time.Second, a, b)
		})
	}
}
