package owned

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/bloom"
	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
)

// somePartition is the one of most tests here.
var somePartition = Partition{Source: "g/t", Count: 1}

// setOptions are for tests that let no generation end, or bring their own times.
func setOptions(prefix string) Options {
	return Options{
		Prefix: prefix, Secret: []byte("a secret of the tests"), Window: time.Hour,
		Hold: 100 * time.Hour, Lease: 4 * time.Hour, ExpectedKeys: 3_000,
	}
}

// plainStore is a Store over an inner one that nobody asks.
func plainStore(t testing.TB, client redis.UniversalClient, o Options) *Store {
	t.Helper()
	noErr(t, Init(t.Context(), client, o))
	s, err := New(t.Context(), client, dedup.Memory(1<<16), o)
	noErr(t, err)
	t.Cleanup(func() {
		assert.NoError(t, s.Close(context.Background()))
	})
	return s
}

func noErr(t testing.TB, err error) {
	t.Helper()
	require.NoError(t, err)
}

// takeLoaded acquires a partition and waits until its filter is loaded. It folds and saves nothing
// by itself.
func takeLoaded(t testing.TB, s *Store, p Partition) *Ownership {
	t.Helper()
	o := takeTended(t, s, p)
	for !o.tending.CompareAndSwap(false, true) {
		runtime.Gosched() // it is tending now
	}
	return o
}

// takeTended is takeLoaded for a partition that folds and saves.
func takeTended(t testing.TB, s *Store, p Partition) *Ownership {
	t.Helper()
	o, err := s.Acquire(t.Context(), p)
	noErr(t, err)
	<-o.settled
	require.True(t, o.loaded.Load(), "the filter was not loaded")
	return o
}

// idsOf are n IDs, of which those of two names differ.
func idsOf(t testing.TB, name string, n int) []driver.ID {
	t.Helper()
	all := make([]driver.ID, n)
	for i := range all {
		id, err := driver.NewID("test", name, fmt.Sprint(i))
		noErr(t, err)
		all[i] = id
	}
	return all
}

// mark puts marks on record as the owner does.
func (o *Ownership) mark(t testing.TB, ids []driver.ID) {
	t.Helper()
	for some := range slices.Chunk(ids, script.MaxMembers) {
		one := &batchWrite{o: o}
		for i := range some {
			one.marks = append(one.marks, member{is: o.s.members.of(&some[i])})
		}
		o.s.roundTrip(t.Context(), []*batchWrite{one}, nil)
		require.True(t, one.wrote(), "marks were answered %+v", one.reply)
	}
}

// genNow is the newest generation that the owner has heard of.
func (o *Ownership) genNow() int64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.gen
}

// nextSet makes the next marks go to another fresh set.
func (o *Ownership) nextSet() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.sets[o.gen].written = o.s.opts.setMembers()
}

// knows fails when the filter proves one of the marked IDs new, or can prove nothing.
func (o *Ownership) knows(t testing.TB, marked []driver.ID) {
	t.Helper()
	wrong, proven := 0, 0
	for i := range marked {
		if a, _ := o.filter.Check(filterKey(o.s.members.of(&marked[i]))); a == bloom.ProvenNew {
			wrong++
		}
	}
	for _, id := range idsOf(t, "never marked", 1000) {
		a, why := o.filter.Check(filterKey(o.s.members.of(&id)))
		require.NotEqual(t, bloom.Unknown, a, "the filter does not know: %v", why)
		if a == bloom.ProvenNew {
			proven++
		}
	}
	assert.Zero(t, wrong, "keys that are marked are proven new")
	assert.GreaterOrEqual(t, proven, 950, "of 1000 keys that are not marked")
}

// state is what head holds.
func (o *Ownership) state(t testing.TB) *script.State {
	t.Helper()
	heads, err := readHeads(t.Context(), o.s.client, []string{o.names.head})
	noErr(t, err)
	return heads[0]
}

func letGo(t testing.TB, o *Ownership) {
	t.Helper()
	noErr(t, o.Release(t.Context()))
}

// TestLoad: keys that one owner has marked and folded are not new for the next one.
func TestLoad(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		o := takeLoaded(t, plainStore(t, b.Client, setOptions(b.Prefix)), somePartition)
		ids := idsOf(t, "marked", 9000)
		o.mark(t, ids[:2000])
		o.nextSet()
		o.mark(t, ids[2000:2500])
		o.nextSet()
		o.mark(t, ids[2500:2600])
		noErr(t, o.fold(t.Context()))
		o.mark(t, ids[2600:]) // one set above what is read at once
		g := o.state(t).Gens[o.genNow()]
		assert.EqualValues(t, 2, g.Folded, "what head counts")
		assert.EqualValues(t, 2500, g.Kept)
		assert.EqualValues(t, 6500, g.Fresh)
		letGo(t, o)

		next := takeLoaded(t, plainStore(t, b.Client, setOptions(b.Prefix)), somePartition)
		next.knows(t, ids)
		n, of := next.loading.members.Load(), next.loading.of.Load()
		assert.EqualValues(t, 9000, n)
		assert.EqualValues(t, 9000, of)
		letGo(t, next)
	})
}

// TestLoadGenerations has the window move over marks, folds and snapshots: each owner to come knows
// what the window holds, and the first generation is gone at its end.
func TestLoadGenerations(t *testing.T) {
	for name, kept := range map[string]func(t *testing.T, client redis.UniversalClient) Snapshots{
		"sets": func(*testing.T, redis.UniversalClient) Snapshots { return nil },
		"dir":  func(t *testing.T, _ redis.UniversalClient) Snapshots { return Dir(t.TempDir()) },
		"redis": func(_ *testing.T, client redis.UniversalClient) Snapshots {
			return InRedis(client)
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, client := redistest.Bubble(t)
				opts := setOptions("gens")
				opts.Hold, opts.Lease = 3*time.Hour, 10*time.Minute
				opts.Snapshots = kept(t, client)
				slice := (opts.Window + opts.Hold) / 4
				var ids []driver.ID
				for round := range 8 {
					s := plainStore(t, client, opts)
					o := takeTended(t, s, somePartition)
					if round > 0 {
						o.knows(t, ids[max(0, round-4)*60:])
					}
					more := idsOf(t, fmt.Sprint("round ", round), 60)
					o.mark(t, more[:40])
					o.nextSet()
					o.mark(t, more[40:])
					ids = append(ids, more...)
					assert.False(t, opts.Snapshots != nil && round > 2 &&
						!o.saver.has(o.genNow()-2),
						"round %d: the generation before the last was not loaded from a snapshot",
						round)
					time.Sleep(slice)
					letGo(t, o)
					noErr(t, s.Close(t.Context()))
				}
				for _, key := range m.Keys() {
					assert.False(t, m.TTL(key) == 0 && key != "gens:map" &&
						key != newTestNames("gens").head, "%s has no end", key)
				}
			})
		})
	}
}

func newTestNames(prefix string) names { return newNames(prefix, somePartition.Source, 0) }

// stepper does something before every command of a client.
type stepper struct {
	commands
	n  atomic.Int64
	do func(n int64)
}

func (s *stepper) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		s.do(s.n.Add(1))
		return next(ctx, cmd)
	}
}

func (s *stepper) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		s.do(s.n.Add(1))
		return next(ctx, cmds)
	}
}

// loadSteps fills a partition with folded and fresh sets, acquires it, and loads it once for every
// command that loading takes, with do before that command.
func loadSteps(t *testing.T,
	each func(t *testing.T, o *Ownership, step int64, l *loader, marked []driver.ID)) {
	_, client := redistest.Mini(t)
	for step := int64(1); ; step++ {
		s := plainStore(t, client, fewBuckets(fmt.Sprint("step", step)))
		o := takeLoaded(t, s, somePartition)
		ids := idsOf(t, "marked", 140)
		o.mark(t, ids[:60])
		o.nextSet()
		o.mark(t, ids[60:120])
		noErr(t, o.fold(t.Context()))
		o.mark(t, ids[120:])
		o.feed.Store(o.filter.Load().Begin(bloom.Source{Name: o.sourceName(), Epoch: o.epoch}))
		hooked := redistest.Patient(t, client.Options().Addr)
		steps := &stepper{do: func(int64) {}}
		hooked.AddHook(steps)
		l := o.loader()
		l.client = hooked
		steps.do = func(n int64) {
			if n == step {
				each(t, o, step, l, ids)
			}
		}
		noErr(t, l.load(t.Context()))
		o.knows(t, ids)
		letGo(t, o)
		if steps.n.Load() < step {
			assert.GreaterOrEqual(t, step, int64(5), "the test does not step in between")
			return
		}
	}
}

// TestLoadWhileMarking adds marks before each command that loads the filter, and begins a set, too.
func TestLoadWhileMarking(t *testing.T) {
	loadSteps(t, func(t *testing.T, o *Ownership, step int64, _ *loader, _ []driver.ID) {
		more := idsOf(t, "meanwhile", 50)
		o.mark(t, more[:25])
		o.nextSet()
		o.mark(t, more[25:])
		t.Cleanup(func() {
			for i := range more {
				a, _ := o.filter.Check(
					filterKey(o.s.members.of(&more[i])))
				assert.NotEqual(t, bloom.ProvenNew, a,
					"step %d: a mark of the load's time is proven new", step)
			}
		})
	})
}

// TestLoadWhileForgetting forgets keys while they are counted: there are fewer than head has
// counted, and that is not amnesia.
func TestLoadWhileForgetting(t *testing.T) {
	loadSteps(t, func(t *testing.T, o *Ownership, _ int64, _ *loader, marked []driver.ID) {
		for _, i := range []int{0, 59, 60, 130} {
			for _, err := range o.s.Forget(t.Context(), marked[i:i+1], time.Hour) {
				noErr(t, err)
			}
		}
	})
}

// TestLoadWhileRotating begins a generation while the filter is loaded. It must be covered, or the
// filter would know nothing until the next owner.
func TestLoadWhileRotating(t *testing.T) {
	loadSteps(t, func(_ *testing.T, o *Ownership, _ int64, _ *loader, _ []driver.ID) {
		o.clock.Add(o.s.opts.slice().Milliseconds())
	})
}

// TestLoadStale: another owner came while the filter was loaded.
func TestLoadStale(t *testing.T) {
	_, client := redistest.Mini(t)
	s := plainStore(t, client, setOptions("stale"))
	o := takeLoaded(t, s, somePartition)
	o.mark(t, idsOf(t, "marked", 10))
	l := o.loader()
	l.epoch++
	assert.ErrorIs(t, l.load(t.Context()), ErrLost, "in another epoch")
	l = o.loader()
	o.filter.Load().Begin(bloom.Source{Name: "newer"})
	assert.ErrorIs(t, l.load(t.Context()), ErrLost, "with a feed that is dead")
}

// TestAmnesia deletes members. The next owner finds fewer than head counts. Then nobody can acquire
// the partition until an operator has called Init.
func TestAmnesia(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, o *Ownership,
		client redis.UniversalClient){
		"head": func(t *testing.T, o *Ownership, c redis.UniversalClient) {
			noErr(t, c.Del(t.Context(), o.names.head).Err())
		},
		"a fresh set": func(t *testing.T, o *Ownership, c redis.UniversalClient) {
			noErr(t, c.Del(t.Context(), o.names.fresh(o.genNow(), 2)).Err())
		},
		"a bucket": func(t *testing.T, o *Ownership, c redis.UniversalClient) {
			id := idsOf(t, "marked", 1)[0]
			noErr(t, c.Del(t.Context(),
				o.names.bucket(o.genNow(), o.s.members.bucket(o.s.members.of(&id)))).Err())
		},
		"one member": func(t *testing.T, o *Ownership, c redis.UniversalClient) {
			n := c.SPop(t.Context(), o.names.fresh(o.genNow(), 2)).Val()
			require.NotEmpty(t, n, "no member")
		},
	} {
		t.Run(name, func(t *testing.T) {
			redistest.Each(t, func(t *testing.T, b redistest.Backend) {
				opts := setOptions(b.Prefix)
				s := plainStore(t, b.Client, opts)
				o := takeLoaded(t, s, somePartition)
				ids := idsOf(t, "marked", 500)
				o.mark(t, ids[:300])
				o.nextSet()
				o.mark(t, ids[300:])
				noErr(t, o.fold(t.Context()))
				letGo(t, o)
				lose(t, o, b.Client)

				o, err := s.Acquire(t.Context(), somePartition)
				if err == nil {
					<-o.settled
					err = context.Cause(o.Context())
				}
				require.ErrorIs(t, err, ErrAmnesia, "the first owner after it")
				_, err = s.Acquire(t.Context(), somePartition)
				assert.ErrorIs(t, err, ErrAmnesia, "the second")
				noErr(t, Init(t.Context(), b.Client, opts))
				o = waitReady(t, s)
				assert.True(t, o.isShared(), "after Init it is not shared")
				letGo(t, o)
			})
		})
	}
}

// waitReady acquires as soon as the lease of the owner before is over.
func waitReady(t *testing.T, s *Store) *Ownership {
	t.Helper()
	_ = s.client.Del(t.Context(), newNames(s.opts.Prefix, somePartition.Source, 0).own).Err()
	return takeLoaded(t, s, somePartition)
}

// TestAmnesiaIsWrittenDown: if amnesia cannot be written down, the load begins again. It must not
// end as amnesia that no other process knows of.
func TestAmnesiaIsWrittenDown(t *testing.T) {
	_, client := redistest.Mini(t)
	o := takeLoaded(t, plainStore(t, client, setOptions("down")), somePartition)
	o.mark(t, idsOf(t, "marked", 10))
	client.Del(t.Context(), o.names.fresh(o.genNow(), 1))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	err := o.writeLost(ctx, ErrAmnesia)
	assert.Error(t, err, "not written")
	assert.NotErrorIs(t, err, ErrAmnesia)
	require.False(t, o.state(t).Lost, "lost without a round trip")
	assert.ErrorIs(t, o.load(t.Context()), ErrAmnesia)
	assert.True(t, o.state(t).Lost, "it is not written down")
}

// TestLoadRefusesWhatItCannotRead: neither "absent" nor "there".
func TestLoadRefusesWhatItCannotRead(t *testing.T) {
	for name, spoil := range map[string]func(ctx context.Context, o *Ownership,
		client *redis.Client) error{
		"a member": func(ctx context.Context, o *Ownership, c *redis.Client) error {
			return c.SAdd(ctx, o.names.fresh(o.genNow(), 1), "x").Err()
		},
		"a string in place of a set": func(ctx context.Context, o *Ownership,
			c *redis.Client) error {
			return c.Set(ctx, o.names.fresh(o.genNow(), 1), "x", 0).Err()
		},
		"numbers of sets": func(ctx context.Context, o *Ownership, c *redis.Client) error {
			return c.HSet(ctx, o.names.head, fmt.Sprint("new:", o.genNow()), 1<<40).Err()
		},
		"the version": func(ctx context.Context, o *Ownership, c *redis.Client) error {
			return c.HSet(ctx, o.names.head, "version", "2").Err()
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, client := redistest.Mini(t)
			o := takeLoaded(t, plainStore(t, client, setOptions("spoilt")), somePartition)
			o.mark(t, idsOf(t, "marked", 10))
			o.feed.Store(o.filter.Load().Begin(bloom.Source{Name: o.sourceName(), Epoch: o.epoch}))
			noErr(t, spoil(t.Context(), o, client))
			defer client.HSet(t.Context(), o.names.head, "version", "1")
			err := o.load(t.Context())
			assert.Error(t, err)
			assert.NotErrorIs(t, err, ErrAmnesia)
			a, _ := o.filter.Check([16]byte{})
			assert.Equal(t, bloom.Unknown, a, "the filter says")
		})
	}
}

// TestReleaseIsNotAcquiredAgain: a renewal that was under way when a partition was released finds
// that nobody holds it. It must not acquire the partition for a lease that nobody uses.
func TestReleaseIsNotAcquiredAgain(t *testing.T) {
	_, client := redistest.Mini(t)
	s := plainStore(t, client, setOptions("again"))
	o := takeLoaded(t, s, somePartition)
	noErr(t, o.giveUp(t.Context()))
	s.renew([]*Ownership{o})
	assert.Zero(t, client.Exists(t.Context(), o.names.own).Val(), "it is held again")
	letGo(t, o)
}
