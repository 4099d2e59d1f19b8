package script_test

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
)

// ownBatch is the number of keys of a batch, and ownSet of a fresh set.
const (
	ownBatch = 256
	ownSet   = 16 << 10
)

// Benchmark reports what a key costs a Redis of its own: exec-ns is the time of the
// commands (INFO commandstats), cpu-ns all of its CPU, with what the protocol takes.
func Benchmark(b *testing.B) {
	client := redistest.Client(b,
		&redis.Options{Addr: servertest.Private(b, servertest.KindRedis).Addr})
	o := &ownBench{client: client, runner: script.NewRunner(client), g: -1}
	o.keys = script.Keys{Head: "{own}:head", Own: "{own}:own", Run: "{own}:run"}
	o.self = script.Owner{Token: [16]byte{1}, Lease: time.Hour, Slice: slice, Keep: keep}
	o.call(b, script.NewRemap(o.keys, script.Remap{Bear: true}))
	r := o.call(b, script.NewAcquire(o.keys, o.self, script.Claim{Hold: time.Hour}))
	o.self.Epoch, o.g = r.Epoch, int64(r.Now/slice)
	b.Run("SET NX PX GET, SET PX", o.set)
	b.Run("begin", o.begin)
	b.Run("mark", o.mark)
	b.Run("mark and begin", o.both)
	for _, per := range []int{20, 40} {
		b.Run(fmt.Sprintf("fold, %d a bucket", per), func(b *testing.B) { o.fold(b, per) })
	}
	b.Run("ask, all done", o.ask(ownBatch))
	b.Run("ask, none done", o.ask(0))
	for _, full := range []int{128, 256, 400} {
		b.Run(fmt.Sprintf("ask, in buckets of %d", full), func(b *testing.B) {
			o.askBuckets(b, full, false)
		})
		b.Run(fmt.Sprintf("ask, in buckets of %d, foreign", full), func(b *testing.B) {
			o.askBuckets(b, full, true)
		})
	}
}

type ownBench struct {
	client  *redis.Client
	runner  *script.Runner
	keys    script.Keys
	self    script.Owner
	g       int64
	n, name uint64 // the newest fresh set, and the newest field
	marks   int    // in that set
}

func (o *ownBench) call(b *testing.B, c script.Call) script.Reply {
	b.Helper()
	r := o.runner.Run(b.Context(), []script.Call{c})[0]
	require.NoError(b, r.Err)
	require.NotContains(b, []string{script.AnswerStale, script.AnswerEdge,
		script.AnswerGrown}, r.Answer)
	return r
}

// perKey runs f, which takes a number of keys, and reports the server's cost of each.
// Before each run of it before is run, unless it is nil.
func (o *ownBench) perKey(b *testing.B, keys int, before, f func()) {
	b.Helper()
	var cpu, exec float64
	look := func(sign float64) {
		cpu += sign * (o.info(b, "cpu", "used_cpu_user:") + o.info(b, "cpu", "used_cpu_sys:"))
		for _, command := range []string{"evalsha", "set", "getrange"} {
			exec += sign * o.info(b, "commandstats", "cmdstat_"+command+":calls=")
		}
	}
	if before == nil {
		look(-1)
	}
	b.ResetTimer()
	for range b.N {
		if before != nil {
			b.StopTimer()
			before()
			look(-1)
			b.StartTimer()
		}
		f()
		if before != nil {
			look(1)
		}
	}
	b.StopTimer()
	if before == nil {
		look(1)
	}
	b.ReportMetric(exec*1e3/float64(b.N*keys), "exec-ns/key")
	b.ReportMetric(cpu*1e9/float64(b.N*keys), "cpu-ns/key")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*keys), "wall-ns/key")
	b.ReportMetric(0, "ns/op")
}

// info returns the number behind a name, and of a command its microseconds; 0 where the
// server has none.
func (o *ownBench) info(b *testing.B, section, name string) float64 {
	b.Helper()
	_, after, found := strings.Cut(o.client.Info(b.Context(), section).Val(), name)
	if !found {
		return 0
	}
	if section == "commandstats" {
		_, after, _ = strings.Cut(after, "usec=")
	}
	v, err := strconv.ParseFloat(after[:strings.IndexAny(after, ",\r")], 64)
	require.NoError(b, err)
	return v
}

func ownRandom(n int) []int64 {
	ids := make([]int64, n)
	for i := range ids {
		ids[i] = int64(rand.Uint64())
	}
	return ids
}

func (o *ownBench) set(b *testing.B) {
	o.perKey(b, ownBatch, nil, func() {
		claim, done := o.client.Pipeline(), o.client.Pipeline()
		for _, id := range ownRandom(ownBatch) {
			key := fmt.Sprintf("owned:bench:{%016x}", uint64(id))
			claim.SetArgs(b.Context(), key, "0123456789abcdef",
				redis.SetArgs{Mode: "NX", TTL: time.Minute, Get: true})
			done.Set(b.Context(), key, "1", 10*time.Minute)
		}
		_, _ = claim.Exec(b.Context()) // nil, which is an error, where there was none
		_, err := done.Exec(b.Context())
		require.NoError(b, err)
	})
	o.client.FlushDB(b.Context()) // of its own server
	o.call(b, script.NewRemap(o.keys, script.Remap{Bear: true}))
	o.self.Epoch = o.call(b, script.NewAcquire(o.keys, o.self,
		script.Claim{Hold: time.Hour})).Epoch
	o.n, o.marks = 0, 0
}

func (o *ownBench) field() script.Field {
	o.name++
	return script.Field{Name: script.FieldName(o.self.Epoch, o.name),
		Blob: script.Blob(ownRandom(ownBatch)...)}
}

func (o *ownBench) fresh(n uint64) string { return fmt.Sprintf("{own}:f:%d:%d", o.g, n) }

// turn marks a batch in fresh sets of ownSet members.
func (o *ownBench) turn() *script.Batch {
	if o.marks += ownBatch; o.n == 0 || o.marks > ownSet {
		o.n, o.marks = o.n+1, ownBatch
	}
	return &script.Batch{Fresh: o.fresh(o.n), Gen: o.g, N: o.n, Marks: ownRandom(ownBatch)}
}

func (o *ownBench) begin(b *testing.B) {
	o.perKey(b, ownBatch, nil, func() {
		f := o.field() // and the one before goes: run has a few
		ended := []string{script.FieldName(o.self.Epoch, o.name-1)}
		o.call(b, script.NewBatch(o.keys, o.self,
			&script.Batch{Begin: []script.Field{f}, Ended: ended}))
	})
}

func (o *ownBench) mark(b *testing.B) {
	o.perKey(b, ownBatch, nil, func() {
		o.call(b, script.NewBatch(o.keys, o.self, o.turn()))
	})
}

func (o *ownBench) both(b *testing.B) {
	o.perKey(b, ownBatch, nil, func() {
		turn, f := o.turn(), o.field()
		turn.Begin, turn.Ended = []script.Field{f},
			[]string{script.FieldName(o.self.Epoch, o.name-1)}
		o.call(b, script.NewBatch(o.keys, o.self, turn))
	})
}

// fold folds whole fresh sets by calls of 2048 members, per of them for a bucket, until a
// bucket was folded to six times.
func (o *ownBench) fold(b *testing.B, per int) {
	buckets, each := ownSet/per, 2048/per
	calls := (buckets + each - 1) / each
	folded := o.n + 1
	o.n++ // the older ones stay
	o.poke(b, "fold:", o.n-1)
	var members []int64
	fill := func() {
		members = ownRandom(ownSet)
		for at := 0; at < ownSet; at += script.MaxMembers {
			o.call(b, script.NewBatch(o.keys, o.self,
				&script.Batch{Fresh: o.fresh(folded), Gen: o.g, N: folded,
					Marks: members[at : at+script.MaxMembers]}))
		}
		for i := range members {
			members[i] &^= 1
		}
	}
	o.perKey(b, ownSet, fill, func() {
		for c := range calls {
			f := &script.Fold{Fresh: o.fresh(folded), Gen: o.g, N: folded, Count: ownSet,
				Last: c == calls-1}
			for i := c * each; i < min((c+1)*each, buckets); i++ {
				to := min(per*(i+1), ownSet)
				if i == buckets-1 {
					to = ownSet
				}
				f.Buckets = append(f.Buckets,
					script.Fill{Key: fmt.Sprintf("{own}:b%d:%d:%d:%d", per, o.g, i,
						folded/6), Members: members[per*i : to]})
			}
			o.call(b, script.NewFold(o.keys, o.self, f))
		}
		folded++
		o.n = folded
	})
	o.marks = ownSet // the next mark opens a set
}

// poke writes a field of the generation past the scripts.
func (o *ownBench) poke(b *testing.B, field string, v uint64) {
	b.Helper()
	err := o.client.HSet(b.Context(), o.keys.Head, field+strconv.FormatInt(o.g, 10),
		v).Err()
	require.NoError(b, err)
}

// ask looks for a batch in four fresh sets; a number of its ids are in the first.
func (o *ownBench) ask(done int) func(b *testing.B) {
	return func(b *testing.B) {
		q := &script.Ask{Epoch: o.self.Epoch}
		ids := ownRandom(ownBatch)
		for s := range uint64(4) {
			n := o.n + 1 + s
			q.Fresh = append(q.Fresh, o.fresh(n))
			for range ownSet / ownBatch {
				o.call(b, script.NewBatch(o.keys, o.self,
					&script.Batch{Fresh: o.fresh(n), Gen: o.g,
						N: n, Marks: ownRandom(ownBatch)}))
			}
		}
		if done > 0 {
			o.call(b, script.NewBatch(o.keys, o.self,
				&script.Batch{Fresh: o.fresh(o.n + 1), Gen: o.g, N: o.n + 1,
					Marks: ids[:done]}))
		}
		o.n += 4
		q.IDs = ids
		o.perKey(b, ownBatch, nil, func() { o.call(b, script.NewAsk(o.keys, q)) })
	}
}

// askBuckets looks for a batch whose ids are each in a bucket of its own, in the middle of
// it.
func (o *ownBench) askBuckets(b *testing.B, full int, foreign bool) {
	n := o.n + 1
	o.poke(b, "fold:", o.n)
	q := &script.Ask{Epoch: o.self.Epoch, Foreign: foreign,
		FoldedTo: []script.FoldedTo{{Gen: o.g, N: o.n}}}
	o.call(b, script.NewBatch(o.keys,
		o.self, &script.Batch{Fresh: o.fresh(n), Gen: o.g, N: n, Marks: ownRandom(1)}))
	for i := range ownBatch {
		fill := script.Fill{Key: fmt.Sprintf("{own}:asked:%d:%d", n, i),
			Members: ownRandom(full)}
		for m := range fill.Members {
			fill.Members[m] &^= 1
		}
		o.call(b, script.NewFold(o.keys, o.self,
			&script.Fold{Fresh: o.fresh(n), Gen: o.g, N: n, Count: 1,
				Buckets: []script.Fill{fill}}))
		q.IDs = append(q.IDs, fill.Members[full/2])
		q.Buckets = append(q.Buckets, script.Bucket{Key: fill.Key, Of: []int{i}})
	}
	o.n = n
	q.Gen, q.Newest = o.g, n
	o.perKey(b, ownBatch, nil, func() {
		r := o.call(b, script.NewAsk(o.keys, q))
		for _, f := range r.Found {
			require.True(b, f.Done(), "not found")
		}
	})
}
