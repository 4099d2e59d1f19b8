package redisadapter_test

import (
	"context"
	"encoding/binary"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/redisadapter"
)

// TestWatchTells: each event is reported once.
func TestWatchTells(t *testing.T) {
	for name, c := range map[string]struct {
		then map[string]string
		want string
	}{
		"evictions": {map[string]string{"evicted_keys": "5"}, "evicted_keys"},
		"memory":    {map[string]string{"used_memory": "950000"}, "memory_near_limit"},
		"policy": {map[string]string{"maxmemory_policy": "allkeys-lru"},
			"eviction_policy"},
		"role":           {map[string]string{"role": "slave"}, "replica_role"},
		"another":        {map[string]string{"run_id": "r9"}, "suspect"},
		"clock ahead":    {map[string]string{"ahead": "5s"}, "clock_jump"},
		"clock behind":   {map[string]string{"ahead": "-5s"}, "clock_jump"},
		"clock a little": {map[string]string{"ahead": "50ms"}, ""},
		"late answer":    {map[string]string{"late": "1200ms"}, ""},
		"nothing":        {nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var rounds atomic.Int32
			var turned, late atomic.Bool
			client := redistest.Client(t, infoServer(t, func() string {
				rounds.Add(1)
				fields := map[string]string{}
				ahead := time.Duration(0)
				if turned.Load() {
					for name, value := range c.then {
						fields[name] = value
					}
					ahead, _ = time.ParseDuration(c.then["ahead"])
				}
				fields["server_time_usec"] = strconv.FormatInt(time.Now().Add(ahead).UnixMicro(),
					10)
				if took, err := time.ParseDuration(c.then["late"]); err == nil && turned.Load() &&
					!late.Swap(true) {
					<-time.After(took)
				}
				return infoReply(fields)
			}))
			h := &findingLog{}
			store, err := redisadapter.New(t.Context(),
				client, redisadapter.Options{OnFinding: h.add})
			must(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			rounds.Store(0)
			go func() { done <- store.Watch(ctx, 5*time.Millisecond) }()
			eventually(t, "some rounds", func() bool { return rounds.Load() > 3 })
			assert.Empty(t, h.list, "before")
			turned.Store(true)
			now := rounds.Load()
			eventually(t, "some more", func() bool { return rounds.Load() > now+5 })
			cancel()
			err = <-done
			assert.ErrorIs(t, err, context.Canceled)
			want := 1
			if c.want == "" {
				want = 0
			}
			require.Len(t, h.list, want, "findings %v, want %q", h.list, c.want)
			assert.False(t, want == 1 && h.list[0].Code != c.want,
				"findings %v, want %q", h.list, c.want)
		})
	}
}

// TestWatchOfAnotherServer: another server takes over. Keys that it evicted before do not count.
// Keys that it has evicted since do.
func TestWatchOfAnotherServer(t *testing.T) {
	for name, c := range map[string]struct {
		before, evicted, uptime string
		lost                    bool
	}{
		"promoted, evicted long ago": {"0", "5", "86400", false},
		"restarted":                  {"9", "0", "0", false},
		"restarted, evicts":          {"9", "5", "0", true},
	} {
		t.Run(name, func(t *testing.T) {
			var rounds atomic.Int32
			var turned atomic.Bool
			client := redistest.Client(t, infoServer(t, func() string {
				rounds.Add(1)
				if turned.Load() {
					return infoReply(map[string]string{"run_id": "r9", "evicted_keys": c.evicted,
						"uptime_in_seconds": c.uptime})
				}
				return infoReply(map[string]string{"evicted_keys": c.before})
			}))
			h := &findingLog{}
			store, err := redisadapter.New(t.Context(),
				client, redisadapter.Options{OnFinding: h.add})
			must(t, err)
			before := h.count("evicted_keys") // by New
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() { done <- store.Watch(ctx, 5*time.Millisecond) }()
			eventually(t, "some rounds", func() bool { return rounds.Load() > 3 })
			turned.Store(true)
			eventually(t, "the other server", func() bool {
				return h.count("suspect") == 1
			})
			now := rounds.Load()
			eventually(t, "some more", func() bool { return rounds.Load() > now+3 })
			cancel()
			<-done
			assert.Equal(t, c.lost, h.count("evicted_keys") > before, "findings %v", h.list)
		})
	}
}

// TestWatchBacksOff: a server that is down is asked ever more rarely, and is reported once until it
// is back.
func TestWatchBacksOff(t *testing.T) {
	var asked atomic.Int32
	var down atomic.Bool
	opts := infoServer(t, func() string {
		asked.Add(1)
		if down.Load() {
			return ""
		}
		return infoReply(nil)
	})
	h := &findingLog{}
	store, err := redisadapter.New(t.Context(), redistest.Client(t, opts),
		redisadapter.Options{OnFinding: h.add})
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	down.Store(true)
	asked.Store(0)
	began, done := time.Now(), make(chan error, 1)
	go func() { done <- store.Watch(ctx, 10*time.Millisecond) }()
	eventually(t, "it is asked eight times", func() bool { return asked.Load() >= 8 })
	// Seven pauses, the first of 10 ms, each twice as long as the one before, and of each half at
	// least.
	took := time.Since(began)
	assert.GreaterOrEqual(t, took, 7*10*time.Millisecond*8,
		"asked %d times within %v", asked.Load(), took)
	cancel()
	err = <-done
	assert.ErrorIs(t, err, context.Canceled)
	assert.Equal(t, 1, h.count("unreachable"), "findings %v", h.list)
}

// TestWatchReturns: Watch returns with its context, although the server never answers.
func TestWatchReturns(t *testing.T) {
	var hang atomic.Bool
	arrived := make(chan struct{}, 100)
	opts := infoServer(t, func() string {
		if hang.Load() {
			arrived <- struct{}{}
			<-t.Context().Done()
		}
		return infoReply(nil)
	})
	store, err := redisadapter.New(t.Context(), redistest.Client(t, opts), redisadapter.Options{})
	must(t, err)
	hang.Store(true)
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		<-arrived
		cancel(gone)
	}()
	err = store.Watch(ctx, 0)
	assert.ErrorIs(t, err, gone)
	wantInput(t, store.Watch(t.Context(), -1), "every")
	var none context.Context
	wantInput(t, store.Watch(none, 0), "Context")
}

// BenchmarkGuard is what the guard adds to a batch of claims that are granted. They
// expire within a minute.
func BenchmarkGuard(b *testing.B) {
	for _, backend := range []string{"redis", "cluster"} {
		for _, size := range []int{1, batchSize} {
			for _, policy := range []redisadapter.Amnesia{redisadapter.GuardOff,
				redisadapter.FailClosed} {
				b.Run(backend+"/batch="+strconv.Itoa(size)+"/guard="+policy.String(),
					func(b *testing.B) {
						be := redistest.Open(b, backend)
						store, _ := guarded(b, be.Client,
							redisadapter.Options{Prefix: be.Prefix, Amnesia: policy})
						reqs := requests(0)[:size]
						b.ReportAllocs()
						for n := uint64(0); b.Loop(); n++ {
							for i := range reqs {
								reqs[i].Lease, reqs[i].Hold = 30*time.Second, 30*time.Second
								binary.BigEndian.PutUint64(reqs[i].ID[8:], n)
							}
							if a := store.Claim(b.Context(), reqs)[0]; a.Outcome != dedup.Acquired {
								b.Fatalf("%+v", a)
							}
						}
					})
			}
		}
	}
}
