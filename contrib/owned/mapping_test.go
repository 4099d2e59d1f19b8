package owned

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
)

// mapOptions are for tests that let no generation end.
func mapOptions(prefix string) Options {
	o, err := Options{
		Prefix: prefix, Secret: []byte("0123456789abcdef"), Window: 10 * time.Hour,
		Hold: 2 * time.Hour, Lease: time.Hour / 4, ExpectedKeys: 10000,
	}.complete()
	if err != nil {
		panic(err)
	}
	return o
}

// booted is the registry of a new deployment.
func booted(t *testing.T, b redistest.Backend) *registry {
	t.Helper()
	o := mapOptions(b.Prefix)
	require.NoError(t, Init(t.Context(), b.Client, o))
	return newRegistry(b.Client, &o)
}

func mustMap(t *testing.T, r *registry, p Partition) mapSource {
	t.Helper()
	s, err := r.mapped(t.Context(), &p)
	require.NoError(t, err)
	return s
}

// lines returns the map's line of a source, and the heads of its partitions.
func (r *registry) lines(t *testing.T, source string) (mapSource, []*script.State) {
	t.Helper()
	m, _, err := r.read(t.Context())
	require.NoError(t, err)
	require.NotNil(t, m)
	s := m.sources[source]
	heads, err := r.heads(t.Context(), source, s.count)
	require.NoError(t, err)
	return s, heads
}

// sound fails when something may be granted although a partition does not know of the mapping yet.
func (r *registry) sound(t *testing.T, source string) {
	t.Helper()
	s, heads := r.lines(t, source)
	if s.changing {
		return
	}
	for i, h := range heads {
		switch {
		case h == nil:
			t.Errorf("steady, and partition %d has no head", i)
		case h.MapVersion != s.version:
			t.Errorf("steady in version %d, and partition %d knows %d", s.version, i, h.MapVersion)
		case s.span > 0 && h.SharedUntil < time.Duration(
			time.Now().Add(s.span-time.Minute).UnixNano()):
			t.Errorf("steady after a change, and partition %d is shared until %v",
				i, time.UnixMilli(h.SharedUntil.Milliseconds()))
		}
	}
}

// ownPartition acquires a partition under a map version.
func ownPartition(t *testing.T, r *registry, source string, number int32,
	version uint64) script.Reply {
	t.Helper()
	n := newNames(r.prefix, source, number)
	keys := script.Keys{Head: n.head, Own: n.own, Run: n.run}
	self := script.Owner{Token: [16]byte{1, byte(number)}, MapVersion: version,
		Lease: time.Minute}
	reply := r.runner.Run(t.Context(),
		[]script.Call{script.NewAcquire(keys,
			self, script.Claim{Hold: time.Hour})})[0]
	require.NoError(t, reply.Err)
	return reply
}

func TestMapping(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		r := booted(t, b)
		p := Partition{Source: "g/t", Number: 1, Count: 4, Mapping: "m"}
		first := mustMap(t, r, p)
		assert.False(t, first.changing, "a new source is %+v", first)
		assert.EqualValues(t, 1, first.version)
		assert.EqualValues(t, 4, first.count)
		assert.Zero(t, first.span)
		r.sound(t, "g/t")
		_, heads := r.lines(t, "g/t")
		assert.Zero(t, heads[0].SharedUntil, "a new source is shared")
		assert.Equal(t, first, mustMap(t, r, p), "the second time")
		got := ownPartition(t, r, "g/t", 1, 1)
		require.Equal(t, script.AnswerAcquired, got.Answer, "acquire answered")

		p.Count = remapBatch + 4 // more than one pipeline
		more := mustMap(t, r, p)
		assert.False(t, more.changing, "with more partitions it is %+v", more)
		assert.EqualValues(t, 2, more.version)
		assert.EqualValues(t, 4, more.before)
		assert.Equal(t, r.span(), more.span)
		r.sound(t, "g/t")
		got = ownPartition(t, r, "g/t", 0, 1)
		assert.Equal(t, script.AnswerRemapped, got.Answer,
			"an acquire under the version before")

		p.Count = 4
		_, err := r.mapped(t.Context(), &p)
		assert.ErrorIs(t, err, ErrCount, "a lower count")
		p.Count, p.Mapping = remapBatch+8, "other"
		before, _ := r.lines(t, "g/t")
		_, err = r.mapped(t.Context(), &p)
		assert.ErrorIs(t, err, ErrMapping, "another mapping while a partition is held")
		s, _ := r.lines(t, "g/t")
		assert.Equal(t, before, s, "a mapping that was refused has made it")
		p.Count = remapBatch + 4
		n := newNames(r.prefix, "g/t", 1)
		noErr(t, b.Client.Del(t.Context(), n.own).Err())
		moved := mustMap(t, r, p)
		assert.EqualValues(t, 3, moved.version, "another mapping")
		assert.EqualValues(t, remapBatch+4, moved.before)
		assert.Equal(t, r.span(), moved.span)
		r.sound(t, "g/t")
		mustMap(t, r, Partition{Source: "g/u", Count: 1, Mapping: "m"})
		s, _ = r.lines(t, "g/t")
		assert.EqualValues(t, 3, s.version, "another source changes nothing")
	})
}

// saboteur cuts the connection of the n-th command or pipeline: before it is sent, or before its
// reply is read.
type saboteur struct {
	at     int64
	after  bool
	seen   atomic.Int64
	struck atomic.Bool
	commands
}

type commands struct{}

func (commands) DialHook(next redis.DialHook) redis.DialHook { return next }

var errCut = errors.New("cut by the test")

func (s *saboteur) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		return s.strike(func() error { return next(ctx, cmd) }, []redis.Cmder{cmd})
	}
}

func (s *saboteur) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		return s.strike(func() error { return next(ctx, cmds) }, cmds)
	}
}

// strike fails from the n-th on: a process that was killed sends nothing more.
func (s *saboteur) strike(do func() error, cmds []redis.Cmder) error {
	n := s.seen.Add(1)
	if n < s.at || s.at == 0 {
		return do()
	}
	s.struck.Store(true)
	if n == s.at && s.after {
		_ = do()
	}
	for _, cmd := range cmds {
		if c, ok := cmd.(*redis.Cmd); ok {
			c.SetVal(nil)
		}
		cmd.SetErr(errCut)
	}
	return errCut
}

// TestMappingKilledAnywhere cuts off the process that changes the mapping at every command, before
// it is sent and before it is answered. Whatever it leaves behind, nothing is granted before all
// partitions have the change, and the next process continues it.
func TestMappingKilledAnywhere(t *testing.T) {
	_, client := redistest.Mini(t)
	for _, from := range []int32{0, 3} {
		for _, after := range []bool{false, true} {
			for at := int64(1); ; at++ {
				b := redistest.Backend{Client: client,
					Prefix: fmt.Sprintf("k%d%t%d", from, after, at)}
				r := booted(t, b)
				p := Partition{Source: "g/t", Count: max(from, 1), Mapping: "m"}
				if from > 0 {
					mustMap(t, r, p)
				}
				p.Count = 8
				if !killedMapping(t, r, p, at, after) {
					assert.GreaterOrEqual(t, at, int64(9), "the test does not cut where it should")
					break
				}
			}
		}
	}
}

// killedMapping changes the mapping with a client that is cut off, and then with one that is not.
func killedMapping(t *testing.T, r *registry, p Partition, at int64, after bool) bool {
	t.Helper()
	addr := r.client.(*redis.Client).Options().Addr
	dying := redistest.Client(t, &redis.Options{Addr: addr, MaxRetries: -1})
	s := &saboteur{at: at, after: after}
	dying.AddHook(s)
	o := mapOptions(r.prefix)
	theirs := newRegistry(dying, &o)
	theirs.batch = 2
	_, err := theirs.mapped(t.Context(), &p)
	assert.Equal(t, err != nil, s.struck.Load(), "cut at %d, %t", at, after)
	r.sound(t, p.Source)
	got := mustMap(t, r, p)
	assert.Equal(t, p.Count, got.count, "cut at %d, %t: the next one made it", at, after)
	assert.False(t, got.changing, "cut at %d, %t: the next one made it", at, after)
	r.sound(t, p.Source)
	return s.struck.Load()
}

// TestMappingRaces has several processes change the count at once: all end under one version.
func TestMappingRaces(t *testing.T) {
	_, client := redistest.Mini(t)
	r := booted(t, redistest.Backend{Client: client, Prefix: "race"})
	for count := int32(1); count <= 8; count++ {
		got := make(chan mapSource, 4)
		for range cap(got) {
			go func() {
				o := mapOptions("race")
				s, err := newRegistry(client, &o).mapped(context.WithoutCancel(t.Context()),
					&Partition{Source: "s", Count: count, Mapping: "m"})
				assert.NoError(t, err)
				got <- s
			}()
		}
		first := <-got
		for range cap(got) - 1 {
			assert.Equal(t, first, <-got, "of %d partitions", count)
		}
		assert.Equal(t, uint64(count), first.version, "the version after %d changes", count)
		r.sound(t, "s")
	}
}

// TestMappingSlowFinisher stops one process between the steps while others continue. Its late step
// 3 must not end a change that it has not given to the partitions.
func TestMappingSlowFinisher(t *testing.T) {
	_, client := redistest.Mini(t)
	r := booted(t, redistest.Backend{Client: client, Prefix: "slow"})
	mustMap(t, r, Partition{Source: "s", Count: 2, Mapping: "m"})
	m, text, err := r.read(t.Context())
	require.NoError(t, err)
	third := r.change(m.sources["s"], &Partition{Count: 3, Mapping: "m"})
	done, err := r.swap(t.Context(), text, m.with("s", third))
	require.True(t, done)
	require.NoError(t, err)
	mustMap(t, r, Partition{Source: "s", Count: 3, Mapping: "m"}) // another one ends it
	m, text, _ = r.read(t.Context())
	fourth := r.change(m.sources["s"], &Partition{Count: 4, Mapping: "m"})
	done, err = r.swap(t.Context(), text, m.with("s", fourth))
	require.True(t, done)
	require.NoError(t, err)
	require.NoError(t, r.finish(t.Context(), "s", third)) // and here comes the first
	s, _ := r.lines(t, "s")
	assert.Equal(t, fourth, s, "the late end of a change has made it")
}

// TestMapLost deletes the record while the partitions stay. The recorded mapping is not known any
// more, so nothing may be New for a span. The partitions know a later version than the new record,
// and it must still be possible to acquire them.
func TestMapLost(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		r := booted(t, b)
		p := Partition{Source: "s", Count: 2, Mapping: "m"}
		mustMap(t, r, p)
		p.Count = 3
		mustMap(t, r, p)
		ownPartition(t, r, "s", 0, 2)
		require.NoError(t, b.Client.Del(t.Context(), r.key).Err())
		_, err := r.mapped(t.Context(), &p)
		assert.ErrorIs(t, err, ErrAmnesia, "without the record")
		assert.ErrorIs(t, r.agree(t.Context()), ErrNotInitialized, "New without the record")
		r = booted(t, b)
		s := mustMap(t, r, p)
		assert.Greater(t, s.version, uint64(2), "born anew")
		assert.Equal(t, r.span(), s.span)
		r.sound(t, "s")
	})
}

// TestMapLostEarly is TestMapLost where no partition has seen a second version: only a partition
// that was in use shows that the record was lost.
func TestMapLostEarly(t *testing.T) {
	_, client := redistest.Mini(t)
	b := redistest.Backend{Client: client, Prefix: "early"}
	r := booted(t, b)
	p := Partition{Source: "s", Count: 2, Mapping: "m"}
	mustMap(t, r, p)
	ownPartition(t, r, "s", 1, 1)
	client.Del(t.Context(), r.key)
	r = booted(t, b)
	assert.Equal(t, r.span(), mustMap(t, r, p).span, "born anew")
	r.sound(t, "s")
}

// TestInitRepairs deletes heads. The mapping is not changed while a partition has lost its marks.
// Init creates the partition anew, as shared.
func TestInitRepairs(t *testing.T) {
	redistest.Each(t, func(t *testing.T, b redistest.Backend) {
		r := booted(t, b)
		p := Partition{Source: "s", Count: 3, Mapping: "m"}
		mustMap(t, r, p)
		gone, lost := newNames(r.prefix, "s", 1), newNames(r.prefix, "s", 2)
		b.Client.Del(t.Context(), gone.head)
		r.runner.Run(t.Context(),
			[]script.Call{r.remap("s", 2, script.Remap{MapVersion: 1, Lost: true})})
		p.Count = 4
		_, err := r.mapped(t.Context(), &p)
		assert.ErrorIs(t, err, ErrAmnesia, "a change past a partition without a head")
		r = booted(t, b)
		for _, n := range []names{gone, lost} {
			heads, err := readHeads(t.Context(), b.Client, []string{n.head})
			require.NoError(t, err)
			require.NotNil(t, heads[0])
			assert.False(t, heads[0].Lost)
			assert.GreaterOrEqual(t, heads[0].SharedUntil,
				time.Duration(time.Now().UnixNano())+r.span()-time.Minute)
		}
		s := mustMap(t, r, p)
		assert.EqualValues(t, 4, s.count, "after Init")
		assert.False(t, s.changing, "after Init it is %+v", s)
		r.sound(t, "s")
	})
}

// TestAgreement: New and Init name the option that differs from the record.
func TestAgreement(t *testing.T) {
	_, client := redistest.Mini(t)
	mine := mapOptions("agree")
	assert.ErrorIs(t, newRegistry(client, &mine).agree(t.Context()), ErrNotInitialized,
		"before Init")
	booted(t, redistest.Backend{Client: client, Prefix: "agree"})
	for field, change := range map[string]func(o *Options){
		"Secret":       func(o *Options) { o.Secret = []byte("another one, also long enough") },
		"KeyID":        func(o *Options) { o.KeyID = "other" },
		"Window":       func(o *Options) { o.Window += time.Hour },
		"Hold":         func(o *Options) { o.Hold += time.Hour },
		"Slices":       func(o *Options) { o.Slices++ },
		"ExpectedKeys": func(o *Options) { o.ExpectedKeys *= 2 },
	} {
		other := mapOptions("agree")
		change(&other)
		for name, err := range map[string]error{
			"New":  newRegistry(client, &other).agree(t.Context()),
			"Init": Init(t.Context(), client, other),
		} {
			assert.ErrorIs(t, err, ErrOtherSettings, "%s with another %s", name, field)
			assert.ErrorContains(t, err, "Options."+field, "%s with another %s", name, field)
		}
	}
	assert.NoError(t, newRegistry(client, &mine).agree(t.Context()), "with the same")
	client.Set(t.Context(), mapKey("agree"), "onceward owned map 2\n", 0)
	err := newRegistry(client, &mine).agree(t.Context())
	assert.ErrorIs(t, err, errMap, "a record of another version")
}

// TestEverywhere lists what is on record, and continues a change that was left unfinished.
func TestEverywhere(t *testing.T) {
	_, client := redistest.Mini(t)
	r := booted(t, redistest.Backend{Client: client, Prefix: "all"})
	mustMap(t, r, Partition{Source: "a", Count: 2, Mapping: "m"})
	m, text, err := r.read(t.Context())
	require.NoError(t, err)
	left := m.with("b", r.change(mapSource{}, &Partition{Count: 1, Mapping: "m"}))
	done, err := r.swap(t.Context(), text, left)
	require.True(t, done)
	require.NoError(t, err)
	s := newStore(client, nil, mapOptions("all"))
	all, err := s.everywhere(t.Context())
	require.NoError(t, err)
	got := map[partitionKey]string{}
	for _, spot := range all {
		got[spot.partitionKey] = spot.head
	}
	want := map[partitionKey]string{}
	for _, p := range []Partition{{Source: "a"}, {Source: "a", Number: 1}, {Source: "b"}} {
		n := newNames("all", p.Source, p.Number)
		want[p.place()] = n.head
	}
	assert.Equal(t, want, got)
	r.sound(t, "b")
}

// TestServersThatForget: New and Init refuse servers that evict marks, and clients that read from
// replicas: a mark that is missing leads to a second effect.
func TestServersThatForget(t *testing.T) {
	server := servertest.Private(t, servertest.KindRedis)
	client := redistest.Client(t, &redis.Options{Addr: server.Addr})
	o := mapOptions("forget")
	require.NoError(t, Init(t.Context(), client, o))
	require.NoError(t, client.ConfigSet(t.Context(), "maxmemory-policy", "volatile-ttl").Err())
	for name, err := range map[string]error{"Init": Init(t.Context(), client, o),
		"New": newRegistry(client, &o).agree(t.Context())} {
		assert.ErrorIs(t, err, ErrEvicts, name)
		assert.ErrorContains(t, err, "volatile-ttl", name)
	}
	reading := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{server.Addr},
		ReadOnly: true})
	defer func() { _ = reading.Close() }()
	var input *dedup.InputError
	require.ErrorAs(t, Init(t.Context(), reading, o), &input, "a client that reads from replicas")
	assert.Equal(t, "Client", input.Field)
}
