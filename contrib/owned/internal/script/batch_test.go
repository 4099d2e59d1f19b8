package script_test

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
)

// The effects that the batch write of TestBatch may have.
const (
	doesMarks = 1 << iota
	doesTouches
	doesEnded
	doesBegins
	doesLease
	doesSeq
)

// TestBatch sends a batch write that has all parts to a partition in different states.
func TestBatch(t *testing.T) {
	const marks, ended, begins, seq, rest = doesMarks, doesEnded, doesBegins,
		doesSeq, doesMarks | doesTouches | doesEnded | doesLease | doesSeq
	each(t, func(t *testing.T, b redistest.Backend) {
		for name, c := range map[string]struct {
			prepare func(p *part, turn *script.Batch)
			want    string
			does    int
		}{
			"ours": {func(*part, *script.Batch) {}, script.AnswerDone,
				rest | begins},
			"a later epoch": {func(p *part, _ *script.Batch) {
				p.poke("epoch", p.self.Epoch+1)
			}, script.AnswerStale, 0},
			"an epoch before": {func(p *part, _ *script.Batch) {
				p.poke("epoch", p.self.Epoch-1)
			}, script.AnswerStale, 0},
			"another's token": {func(p *part, _ *script.Batch) {
				p.self.Token = [16]byte{2}
			}, script.AnswerStale, 0},
			"taken over": {func(p *part, _ *script.Batch) {
				p.rob()
			}, script.AnswerStale, 0},
			"forgotten, no one": {func(p *part, _ *script.Batch) {
				p.lapse()
				p.forgetNothing()
			}, script.AnswerStale, 0},
			"no head": {func(p *part, _ *script.Batch) {
				p.must(p.client.Del(t.Context(), p.keys.Head).Err())
			}, script.AnswerAmnesia, 0},
			"a generation early": {func(_ *part, turn *script.Batch) {
				turn.Gen--
			}, script.AnswerEdge, 0},
			"a generation late": {func(_ *part, turn *script.Batch) {
				turn.Gen++
			}, script.AnswerEdge, 0},
			"head is ahead": {func(p *part, _ *script.Batch) {
				p.poke("g", p.g+1)
			}, script.AnswerEdge, 0},
			"into a folded set": {func(_ *part, turn *script.Batch) {
				turn.N = 0
			}, script.AnswerEdge, 0},
			"edge and lapsed": {func(p *part, turn *script.Batch) {
				p.lapse()
				turn.Gen--
			}, script.AnswerEdge, 0},
			"lapsed": {func(p *part, _ *script.Batch) {
				p.lapse()
			}, script.AnswerLapsed, marks | ended | seq},
			"lapsed and shared": {func(p *part, _ *script.Batch) {
				p.lapse()
				p.share()
			}, script.AnswerLapsed, marks | ended | seq},
			"behind": {func(p *part, _ *script.Batch) {
				p.self.Seq = 100
			}, script.AnswerBehind, rest &^ seq},
			"behind and shared": {func(p *part, _ *script.Batch) {
				p.self.Seq = 100
				p.share()
			}, script.AnswerBehind, rest &^ seq},
			"heard less": {func(p *part, _ *script.Batch) {
				p.self.Seq = 0
			}, script.AnswerDone, rest | begins},
			"shared": {func(p *part, _ *script.Batch) {
				p.share()
			}, script.AnswerShared, rest},
			"shared no more": {func(p *part, _ *script.Batch) {
				p.poke("shared", 1)
			}, script.AnswerDone, rest | begins},
			"a later map": {func(p *part, _ *script.Batch) {
				p.remap(script.Remap{MapVersion: 2})
			}, script.AnswerShared, rest},
			"an older map": {func(p *part, _ *script.Batch) {
				p.self.MapVersion = 2
			}, script.AnswerShared, rest},
		} {
			t.Run(name, func(t *testing.T) {
				p := held(t, b, name)
				old := p.begin(1, 2)
				turn := p.turn(1, []int64{2, 4}, []int64{6})
				turn.Ended = []string{old}
				turn.Begin = []script.Field{{Name: script.FieldName(p.self.Epoch,
					2), Blob: script.Blob(8, 10)}}
				c.prepare(p, turn)
				if p.lease() > 0 {
					p.shorten()
				}
				before := p.head()
				r := p.want(c.want, script.NewBatch(p.keys, p.self, turn))
				p.wantTurned(turn, c.does, r, before)
			})
		}
	})
}

// wantTurned requires that the store has the effects does of a batch write that was answered
// r, and no others. before is the head before it.
func (p *part) wantTurned(turn *script.Batch, does int, r script.Reply,
	before *script.State) {
	p.t.Helper()
	var set []int64
	run := map[string][]int64{turn.Ended[0]: {2}}
	if does&doesMarks != 0 {
		set = append(set, 2, 4)
	}
	if does&doesTouches != 0 {
		set = append(set, 7)
	}
	if does&doesEnded != 0 {
		delete(run, turn.Ended[0])
	}
	if does&doesBegins != 0 {
		run[turn.Begin[0].Name] = []int64{8, 10}
	}
	p.wantMembers(turn.Fresh, set...)
	got := p.begun()
	assert.True(p.t, maps.EqualFunc(got, run, slices.Equal), "run has %v, want %v", got, run)
	assert.Equal(p.t, does&doesLease != 0, p.renewed(), "renewed")
	if before == nil {
		return
	}
	h := p.head()
	want := *before
	want.Seq += uint64(does & doesSeq / doesSeq)
	if does != 0 {
		want.Fence = max(before.Fence+1, uint64(r.Now/time.Millisecond)*1024)
		want.Gens = map[int64]script.Gen{p.g: {Newest: 1, Fresh: int64(len(set))}}
	}
	assert.Equal(p.t, fmt.Sprint(want), fmt.Sprint(*h))
	assert.Equal(p.t, h.Seq, r.Seq)
	assert.Equal(p.t, h.Fence, r.Fence)
	assert.Equal(p.t, h.Epoch, r.Epoch)
	assert.Equal(p.t, h.MapVersion, r.MapVersion)
	assert.Equal(p.t, h.SharedUntil, r.SharedUntil)
	assert.Equal(p.t, max(h.Gen, p.g), r.Gen)
}

// rob lets another owner take the partition over.
func (p *part) rob() {
	p.t.Helper()
	p.lapse()
	self := p.self
	self.Token = [16]byte{9}
	p.want(script.AnswerAcquired,
		script.NewAcquire(p.keys, self, script.Claim{Hold: hold}))
}

func (p *part) share() { p.remap(script.Remap{Span: time.Hour}) }

// forgetNothing forgets an id that is in no set.
func (p *part) forgetNothing() {
	p.t.Helper()
	h := p.head()
	p.want(script.AnswerForgotten,
		script.NewForget(p.keys,
			&script.Forget{ID: 1000, Gen: h.Gen, Newest: h.Gens[h.Gen].Newest}))
}

// TestBatchAgain sends batch writes twice, and late. The counts stay exact, and only a begin that
// has ended can come back.
func TestBatchAgain(t *testing.T) {
	each(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		turn := p.turn(1, []int64{2, 4}, []int64{2})
		name := script.FieldName(p.self.Epoch, 1)
		turn.Begin = []script.Field{{Name: name, Blob: script.Blob(8)}}
		call := script.NewBatch(p.keys, p.self, turn)
		first, again := p.want(script.AnswerDone, call), p.want(script.AnswerDone, call)
		assert.Greater(t, again.Fence, first.Fence)
		assert.Equal(t, first.Seq+1, again.Seq)
		p.wantMembers(p.fresh(1), 2, 3, 4)
		assert.Equal(t, script.Gen{Newest: 1, Fresh: 3}, p.head().Gens[p.g])

		end := p.turn(2, []int64{8}, nil)
		end.Ended = []string{name}
		p.want(script.AnswerDone, script.NewBatch(p.keys, p.self, end))
		p.want(script.AnswerDone, call)
		got := p.begun()
		require.Len(t, got, 1)
		assert.Equal(t, []int64{8}, got[name])
		assert.Equal(t, script.Gen{Newest: 2, Fresh: 4}, p.head().Gens[p.g])

		p.want(script.AnswerReleased, script.NewRelease(p.keys, p.self, []string{name}))
		p.want(script.AnswerLapsed, call)
		p.acquire()
		assert.Empty(t, p.begun(), "a turn of one who has released begins")
		p.unchanged(func() { p.want(script.AnswerStale, call) }, p.fresh(1))
	})
}

// TestBatchWithoutMarks renews at every generation, and names none.
func TestBatchWithoutMarks(t *testing.T) {
	each(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		p.shorten()
		r := p.want(script.AnswerDone,
			script.NewBatch(p.keys, p.self, &script.Batch{}))
		assert.True(t, p.renewed())
		assert.Equal(t, p.g, r.Gen)
		assert.Equal(t, p.g, p.head().Gen)
		assert.Zero(t, p.client.Exists(t.Context(), p.fresh(1), p.keys.Run).Val(), "sets were made")
	})
}

// TestBeginNeverOverwritten prevents a begin from being overwritten by another one of its name.
func TestBeginNeverOverwritten(t *testing.T) {
	each(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		name := p.begin(1, 2)
		at := p.client.HGet(t.Context(), p.keys.Run, name).Val()
		p.begin(1, 2)
		f := []script.Field{{Name: name, Blob: script.Blob(4)}}
		r := p.runner.Run(t.Context(),
			[]script.Call{script.NewBatch(p.keys, p.self,
				&script.Batch{Begin: f})})[0]
		assert.Error(t, r.Err)
		assert.Equal(t, at, p.client.HGet(t.Context(), p.keys.Run, name).Val(), "the field")
	})
}

// TestMembersAreExact prevents members from being rounded to a double, and calls that are too large
// for Lua's stack.
func TestMembersAreExact(t *testing.T) {
	each(t, func(t *testing.T, b redistest.Backend) {
		p := held(t, b, "p")
		var ids, members []int64
		for i := range script.MaxMembers / 2 {
			id := int64(uint64(i)*0x9e3779b97f4a7c15) &^ 1
			ids, members = append(ids, id), append(members, id, id+1)
		}
		ids[0], members[0], members[1] = math.MaxInt64-1, math.MaxInt64-1, math.MaxInt64
		ids[1], members[2], members[3] = math.MinInt64, math.MinInt64, math.MinInt64+1
		turn := p.turn(1, ids, ids)
		for i, id := range ids {
			f := script.Field{Name: script.FieldName(p.self.Epoch, uint64(i)),
				Blob: script.Blob(id)}
			turn.Begin, turn.Ended = append(turn.Begin, f), append(turn.Ended, f.Name)
		}
		p.want(script.AnswerDone, script.NewBatch(p.keys, p.self, turn))
		slices.Sort(members)
		assert.Equal(t, members, p.members(p.fresh(1)))
		ask := &script.Ask{Epoch: p.self.Epoch, Foreign: true, Gen: p.g, Newest: 1,
			IDs: append(ids, 2), Fresh: []string{p.fresh(9), p.fresh(1), p.fresh(1)}}
		for i, f := range p.want(script.AnswerFound, script.NewAsk(p.keys, ask)).Found {
			require.Equal(t, i < len(ids), f.Done() && f.Begun())
			require.False(t, f.Touched())
			require.LessOrEqual(t, f, script.IDState(7))
		}
		p.want(script.AnswerFolded, script.NewFold(p.keys, p.self, &script.Fold{
			Fresh: p.fresh(1), Gen: p.g, N: 1, Count: len(members), Last: true,
			Buckets: []script.Fill{{Key: p.bucket(1), Members: members}},
		}))
		assert.Equal(t, members, p.members(p.bucket(1)))
		list := &script.Ask{Epoch: p.self.Epoch, IDs: ask.IDs, Fresh: []string{p.fresh(9)},
			Buckets: []script.Bucket{{Key: p.bucket(9)},
				{Key: p.bucket(1), Of: []int{0, 0}}, {Key: p.bucket(1)}}}
		for i := range list.IDs {
			list.Buckets[0].Of, list.Buckets[2].Of = append(list.Buckets[0].Of, i),
				append(list.Buckets[2].Of, len(ids)-i)
		}
		for i, f := range p.want(script.AnswerFound, script.NewAsk(p.keys, list)).Found {
			require.Equal(t, i < len(ids), f.Done())
			require.LessOrEqual(t, f, script.IDState(1))
		}
		turn.Begin = nil
		turn.N, turn.Fresh = 2, p.fresh(2)
		p.want(script.AnswerDone, script.NewBatch(p.keys, p.self, turn))
		assert.Empty(t, p.begun(), "fields are left")
	})
}

// TestFullServer: a server without memory refuses only begins.
func TestFullServer(t *testing.T) {
	ctx := t.Context()
	client := redistest.Client(t,
		&redis.Options{Addr: servertest.Private(t, servertest.KindRedis).Addr})
	p := held(t, redistest.Backend{Name: "redis", Client: client, Prefix: servertest.Prefix(t)},
		"p")
	old := p.begin(1, 2)
	p.must(client.ConfigSet(ctx, "maxmemory-policy", "noeviction").Err())
	p.must(client.ConfigSet(ctx, "maxmemory", "100kb").Err())
	turn := p.turn(1, []int64{2}, []int64{4})
	turn.Ended = []string{old}
	turn.Begin = []script.Field{{Name: script.FieldName(p.self.Epoch, 2),
		Blob: script.Blob(6)}}
	p.shorten()
	alone := script.NewBatch(p.keys, p.self, &script.Batch{Begin: turn.Begin})
	later := script.NewBatch(p.keys, script.Owner{Epoch: 1},
		&script.Batch{Begin: turn.Begin})
	replies := p.runner.Run(ctx, []script.Call{alone,
		script.NewBatch(p.keys, p.self, turn),
		script.NewBatch(p.keys, p.self, &script.Batch{}), later})
	for i, want := range []string{script.AnswerFull, script.AnswerFull, script.AnswerDone,
		script.AnswerStale} {
		require.NoError(t, replies[i].Err, "turn %d", i)
		assert.Equal(t, want, replies[i].Answer, "turn %d", i)
	}
	p.wantMembers(turn.Fresh, 2, 5)
	assert.Empty(t, p.begun())
	assert.True(t, p.renewed())
	p.want(script.AnswerReleased, script.NewRelease(p.keys, p.self, nil))
	p.want(script.AnswerAcquired,
		script.NewAcquire(p.keys, p.self, script.Claim{Hold: hold}))
	p.must(client.ConfigSet(ctx, "maxmemory", "0").Err())
	p.self.Epoch = p.head().Epoch
	p.begin(3, 6)
}
