package script_test

import (
	"maps"
	"slices"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/contrib/owned/internal/script"
)

// op is a call, and the model's answer to it.
type op struct {
	name  string
	call  script.Call
	model func(now time.Duration) script.Reply
	// after gets the answer.
	after func(r script.Reply)
}

// owner returns the owner of the current epoch, or other if it is not known.
func (w *walk) owner(other *script.Owner) *script.Owner {
	for i := range w.selves {
		if w.m.head != nil && w.selves[i].Epoch == w.m.head.Epoch {
			return &w.selves[i]
		}
	}
	return other
}

func (w *walk) acquireOp(self *script.Owner) op {
	if w.IntN(3) > 0 && w.m.head != nil {
		self.MapVersion = w.m.head.MapVersion
	}
	c := script.Claim{Hold: walkHold, Generation: int32(w.IntN(4)),
		TakeOver: w.IntN(3) == 0}
	if w.IntN(2) == 0 {
		c.Mine = self.Epoch
	}
	asked := *self
	return op{"acquire", script.NewAcquire(w.keys, asked, c),
		func(now time.Duration) script.Reply { return w.m.acquire(asked, c, now) },
		func(r script.Reply) {
			assert.False(w.t, r.Answer == script.AnswerAcquired && r.Epoch <= w.epoch,
				"epoch %d after %d", r.Epoch, w.epoch)
			if r.Answer == script.AnswerAcquired || r.Answer == script.AnswerMine {
				self.Epoch, self.Seq, w.epoch = r.Epoch, r.Seq, max(w.epoch, r.Epoch)
			}
		}}
}

// ids returns up to most ids in random order; an id may be there twice.
func (w *walk) ids(most int) []int64 {
	var ids []int64
	for range w.IntN(most + 1) {
		ids = append(ids, 2*int64(w.IntN(walkIDs)))
	}
	return ids
}

// gen is the newest generation, or now and then another one.
func (w *walk) gen() int64 {
	g := w.m.head.Gen
	if now := w.client.Time(w.t.Context()).Val(); w.IntN(3) > 0 {
		g = max(g, now.UnixMilli()/walkSlice.Milliseconds())
	}
	return g + []int64{0, 0, 0, 0, 0, 0, 0, 1, -1}[w.IntN(9)]
}

func (w *walk) turnOp(self *script.Owner) op {
	g := w.gen()
	of := w.m.head.Gens[g]
	n := max(1, of.Newest+uint64(w.IntN(2)))
	if w.IntN(10) == 0 {
		n = 1 + uint64(w.IntN(int(n)))
	}
	turn := &script.Batch{Fresh: w.set("f", g, int(n)), Gen: g, N: n, Marks: w.ids(4),
		Touches: w.ids(2)}
	for range w.IntN(3) {
		w.fields++
		turn.Begin = append(turn.Begin,
			script.Field{Name: script.FieldName(self.Epoch, w.fields),
				Blob: script.Blob(w.ids(4)...)})
	}
	for name := range w.m.run {
		if w.IntN(2) == 0 {
			turn.Ended = append(turn.Ended, name)
		}
	}
	sent := *self
	return op{"turn", script.NewBatch(w.keys, sent, turn),
		func(now time.Duration) script.Reply { return w.m.turn(sent, turn, now) },
		func(r script.Reply) { w.turned(self, sent, turn, r) }}
}

// turned notes what a batch write has promised.
func (w *walk) turned(self *script.Owner, sent script.Owner,
	turn *script.Batch, r script.Reply) {
	switch r.Answer {
	case script.AnswerDone, script.AnswerShared, script.AnswerBehind, script.AnswerLapsed:
	default:
		return
	}
	assert.Greater(w.t, r.Fence, w.fence)
	w.fence = r.Fence
	if sent.Epoch == self.Epoch && w.IntN(2) == 0 {
		self.Seq = max(self.Seq, r.Seq)
	}
	keep := func(member int64) {
		if w.kept[member] == nil {
			w.kept[member] = make(map[int64]bool)
		}
		w.kept[member][turn.Gen] = true
	}
	for _, id := range turn.Marks {
		keep(id)
	}
	if r.Answer != script.AnswerLapsed {
		for _, id := range turn.Touches {
			keep(id + 1)
		}
	}
	stored := w.begun()
	for _, b := range turn.Begin {
		if r.Answer != script.AnswerDone {
			break
		}
		got, ok := stored[b.Name]
		assert.True(w.t, ok, "begin %s is not on record", b.Name)
		assert.Equal(w.t, b.Blob, script.Blob(got...), "begin %s is not on record", b.Name)
	}
}

// unfolded returns the fresh sets that a reader of head looks in.
func (w *walk) unfolded() (sets []script.Set) {
	for g, of := range w.m.head.Gens {
		for n := of.Folded + 1; n <= of.Newest; n++ {
			sets = append(sets, script.Set{Key: w.set("f", g, int(n)), Gen: g})
		}
	}
	return sets
}

func (w *walk) bucketOf(g, member int64) string { return w.set("b", g, int(member/2%3)) }

func (w *walk) askOp() op {
	h := w.m.head
	q := &script.Ask{Epoch: h.Epoch, Foreign: w.IntN(2) == 0, Gen: h.Gen,
		Newest: h.Gens[h.Gen].Newest, IDs: w.ids(6)}
	for _, s := range w.unfolded() {
		q.Fresh = append(q.Fresh, s.Key)
	}
	for g, of := range h.Gens {
		q.FoldedTo = append(q.FoldedTo, script.FoldedTo{Gen: g, N: of.Folded})
	}
	of := make(map[string][]int)
	for i, id := range q.IDs {
		for g := range h.Gens {
			of[w.bucketOf(g, id)] = append(of[w.bucketOf(g, id)], i)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(of)) {
		q.Buckets = append(q.Buckets, script.Bucket{Key: key, Of: of[key]})
	}
	if w.IntN(20) == 0 {
		q.Epoch--
	}
	return op{"ask", script.NewAsk(w.keys, q),
		func(now time.Duration) script.Reply { return w.m.ask(q, now) }, nil}
}

func (w *walk) foldOp(self *script.Owner) op {
	h := w.m.head
	var open []int64
	for g, of := range h.Gens {
		if of.Folded < of.Newest {
			open = append(open, g)
		}
	}
	slices.Sort(open)
	if len(open) == 0 {
		return w.turnOp(self)
	}
	g := open[max(w.IntN(len(open)), w.IntN(len(open)))]
	n := h.Gens[g].Folded + 1
	f := &script.Fold{Fresh: w.set("f", g, int(n)), Gen: g, N: n, Forgets: h.Forgets,
		Last: w.IntN(2) == 0}
	members := slices.Sorted(maps.Keys(w.m.sets[f.Fresh].members))
	if f.Count = len(members); !f.Last && len(members) > 0 {
		members = members[:w.IntN(len(members))]
	}
	of := make(map[string][]int64)
	for _, m := range members {
		of[w.bucketOf(g, m&^1)] = append(of[w.bucketOf(g, m&^1)], m)
	}
	for _, key := range slices.Sorted(maps.Keys(of)) {
		f.Buckets = append(f.Buckets, script.Fill{Key: key, Members: of[key]})
	}
	sent := *self
	return op{"fold", script.NewFold(w.keys, sent, f),
		func(now time.Duration) script.Reply { return w.m.fold(sent, f, now) }, nil}
}

func (w *walk) releaseOp(self script.Owner) op {
	return op{"release", script.NewRelease(w.keys, self, nil),
		func(now time.Duration) script.Reply { return w.m.release(self, nil, now) }, nil}
}

func (w *walk) remapOp() op {
	c := script.Remap{MapVersion: 1 + uint64(w.IntN(1+len(w.log)/100)),
		Bear: w.m.head == nil || w.IntN(2) == 0, Lost: w.m.head != nil && w.IntN(8) == 0}
	if w.IntN(2) == 0 {
		c.Span = 3 * time.Millisecond
	}
	if w.m.head != nil && w.m.head.Lost {
		c.Bear, c.Lost, c.Span = true, false, 3*time.Millisecond
	}
	return op{"remap", script.NewRemap(w.keys, c),
		func(now time.Duration) script.Reply { return w.m.remap(c, now) }, nil}
}

func (w *walk) forgetOp() op {
	h := w.m.head
	f := &script.Forget{ID: 2 * int64(w.IntN(walkIDs)), Gen: h.Gen,
		Newest: h.Gens[h.Gen].Newest, Fresh: w.unfolded()}
	if names := slices.Sorted(maps.Keys(w.m.run)); len(names) > 0 && w.IntN(4) == 0 {
		if ids := modelIDs(w.m.run[names[w.IntN(len(names))]].blob); len(ids) > 0 {
			f.ID = ids[0]
		}
	}
	for g := range h.Gens {
		f.Buckets = append(f.Buckets, script.Set{Key: w.bucketOf(g, f.ID), Gen: g})
	}
	if w.IntN(3) == 0 {
		f.Token = w.selves[w.IntN(len(w.selves))].Token
	}
	return op{"forget", script.NewForget(w.keys, f),
		func(now time.Duration) script.Reply { return w.m.forget(f, now) },
		func(r script.Reply) {
			if r.Answer == script.AnswerForgotten {
				delete(w.kept, f.ID)
				for key, s := range w.m.sets {
					assert.False(w.t, s.members[f.ID], "%d is forgotten, and in %s", f.ID, key)
				}
				for key, b := range w.m.buckets {
					assert.NotContains(w.t, b.members, f.ID, "%d is forgotten, and in %s", f.ID,
						key)
				}
			}
		}}
}
