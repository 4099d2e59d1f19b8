package script_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/owned/internal/script"
	"github.com/onceward/onceward/internal/redistest"
)

// TestWalk lets three owners and a stranger send random calls, often with outdated knowledge, and
// old calls again. It compares every answer and all that is stored with a model. Apart from the
// model it checks the promises: no mark is lost, counts are exact, and each begin is on record.
func TestWalk(t *testing.T) {
	for _, name := range redistest.Backends {
		t.Run(name, func(t *testing.T) {
			b, steps := redistest.Open(t, name), 400
			w := newWalk(t, b)
			if name == "miniredis" {
				frozen, client := redistest.Freeze(t)
				b.Client, steps = client, 1000
				w = newWalk(t, b)
				w.advance = frozen.Advance
			}
			for n := 0; n < steps || w.advance != nil && w.missing() != "" && n < 5*steps; n++ {
				w.step()
				require.False(t, t.Failed(), "seed %d, after\n%v", w.seed,
					w.log[max(0, len(w.log)-12):])
			}
			t.Logf("seed %d: %v", w.seed, w.answers)
			missing := w.missing()
			assert.False(t, w.advance != nil && missing != "", "seed %d: never met: %s", w.seed,
				missing)
		})
	}
}

// missing returns an answer that the walk has not had yet: it may not have reached that case.
func (w *walk) missing() string {
	for _, answer := range []string{
		"acquire held", "acquire acquired", "acquire mine", "acquire remapped", "acquire amnesia",
		"turn done", "turn stale", "turn edge",
		"turn lapsed", "turn shared", "turn behind", "ask found", "ask moved", "ask stale",
		"ask amnesia", "fold folded", "fold forgot",
		"fold stale", "release released", "release stale", "remap mapped", "forget forgotten",
		"forget stale", "forget in_flight",
	} {
		if w.answers[answer] == 0 {
			return answer
		}
	}
	return ""
}

// walk is a partition, its model, and the owners that send calls to it.
type walk struct {
	*part
	*rand.Rand
	seed    uint64
	m       *model
	advance func(time.Duration) // nil where the clock is the server's own
	selves  []script.Owner
	old     []op
	fields  uint64
	log     []string
	answers map[string]int
	// kept are the members that were accepted and not forgotten, with their generation.
	kept map[int64]map[int64]bool
	// seen are the keys of all sets there may be, and of all buckets.
	seen, seenBuckets map[string]bool
	// fences that were given out, and the largest epoch.
	fence, epoch uint64
}

const (
	walkIDs   = 40
	walkSlice = 20 * time.Millisecond
	walkHold  = 40 * time.Millisecond
)

func newWalk(t *testing.T, b redistest.Backend) *walk {
	seed := rand.Uint64()
	w := &walk{
		part: newPart(t, b, "walk"), Rand: rand.New(rand.NewPCG(seed, 1)), seed: seed,
		m: newModel(), answers: make(map[string]int), kept: make(map[int64]map[int64]bool),
		seen: make(map[string]bool), seenBuckets: make(map[string]bool),
	}
	for i := range 3 {
		w.selves = append(w.selves, script.Owner{
			Token: [16]byte{byte(i + 1)}, MapVersion: 1, Lease: time.Minute, Slice: walkSlice,
			Keep: time.Minute,
		})
	}
	return w
}

// step does one thing and compares.
func (w *walk) step() {
	w.t.Helper()
	switch n := w.IntN(80); {
	case n == 0:
		w.must(w.client.Del(w.t.Context(), w.keys.Own).Err())
		w.m.own = ""
		return
	case n <= 2 && w.advance != nil:
		d := []time.Duration{time.Millisecond, walkSlice, 30 * time.Second}[w.IntN(3)]
		w.log = append(w.log, fmt.Sprint("\nadvance ", d))
		w.advance(d)
		return
	case n == 3 && w.m.head != nil && w.IntN(4) == 0: // a server's clock was ahead
		w.m.head.Gen += 2
		w.poke("g", w.m.head.Gen)
		return
	case n == 4 && w.m.head != nil && w.IntN(2) == 0: // a tail is lost
		w.m.head.Seq -= min(w.m.head.Seq, 5)
		w.poke("seq", w.m.head.Seq)
		return
	}
	o := w.next()
	if w.old = append(w.old, o); w.IntN(6) == 0 {
		return // it is sent later, if at all
	}
	r := w.call(o.call)
	w.m.expire(r.Now)
	want := o.model(r.Now)
	w.log = append(w.log, fmt.Sprintf("\n%s %v -> %+v", o.name, o.call.Args(), r))
	w.answers[o.name+" "+r.Answer]++
	if r.Moved {
		w.answers["ask moved"]++
	}
	slack := 2 * time.Millisecond
	if w.advance == nil { // the clock of a real server moves while a script runs
		slack = time.Second
	}
	if diff := want.Left - r.Left; diff >= -slack && diff < time.Minute {
		want.Left = r.Left
	}
	assert.Equal(w.t, fmt.Sprintf("%+v", want), fmt.Sprintf("%+v", r), "%s answered", o.name)
	if o.after != nil {
		o.after(r)
	}
	w.compare(r.Now)
	w.invariants(r)
}

// next picks an operation: an earlier one that is sent again, or a new one.
func (w *walk) next() op {
	self := &w.selves[w.IntN(len(w.selves))]
	if w.IntN(4) > 0 {
		self = w.owner(self)
	}
	if w.m.head == nil || w.IntN(60) == 0 {
		return w.remapOp()
	}
	switch n := w.IntN(100); {
	case n < 20 && len(w.old) > 0:
		return w.old[len(w.old)-1-w.IntN(min(len(w.old), 40))]
	case n < 26:
		return w.acquireOp(self)
	case n < 60:
		return w.turnOp(self)
	case n < 72:
		return w.askOp()
	case n < 90:
		return w.foldOp(self)
	case n < 92:
		return w.releaseOp(*self)
	}
	return w.forgetOp()
}

// compare compares all that is stored with the model.
func (w *walk) compare(now time.Duration) {
	w.t.Helper()
	ctx := w.t.Context()
	for key := range w.m.sets {
		w.seen[key] = true
	}
	for key := range w.m.buckets {
		w.seenBuckets[key] = true
	}
	pipe := w.client.Pipeline()
	head, run, own := pipe.HGetAll(ctx, w.keys.Head), pipe.HGetAll(ctx, w.keys.Run),
		pipe.Get(ctx, w.keys.Own)
	sets := make(map[string]*redis.StringSliceCmd)
	for key := range w.seen {
		sets[key] = pipe.SMembers(ctx, key)
	}
	buckets := make(map[string]*redis.StringCmd)
	for key := range w.seenBuckets {
		buckets[key] = pipe.Get(ctx, key)
	}
	_, _ = pipe.Exec(ctx) // own may be absent: all are looked at
	state, err := script.ReadHead(head.Val())
	w.must(err)
	got, want := fmt.Sprintf("%+v", state), fmt.Sprintf("%+v", w.m.head)
	assert.Equal(w.t, want, got)
	begun := make(map[string]string)
	for name, b := range w.m.run {
		begun[name] = string(binary.BigEndian.AppendUint64(nil, uint64(b.at.Milliseconds()))) +
			b.blob
	}
	assert.Equal(w.t, begun, run.Val())
	assert.Equal(w.t, w.m.own, own.Val())
	for key, cmd := range sets {
		var want []string
		for m := range w.m.sets[key].members {
			want = append(want, rawMembers(m))
		}
		got := cmd.Val()
		slices.Sort(want)
		slices.Sort(got)
		assert.ElementsMatch(w.t, want, got, "at %v, %s", now, key)
		if len(want) == 0 {
			delete(w.seen, key)
		}
	}
	for key, cmd := range buckets {
		b := w.m.buckets[key]
		assert.Equal(w.t, rawMembers(b.members...), cmd.Val(), "at %v, %s", now, key)
		if len(b.members) == 0 {
			delete(w.seenBuckets, key)
		}
	}
}

// invariants checks the state that compare has confirmed, whatever the model says of the answers.
func (w *walk) invariants(r script.Reply) {
	w.t.Helper()
	if w.m.head == nil {
		return
	}
	listed := make(map[int64]map[int64]bool) // members by generation
	for g, of := range w.m.head.Gens {
		if time.Duration(g+3)*walkSlice+time.Minute <= r.Now {
			continue // over, and its sets with it
		}
		listed[g] = make(map[int64]bool)
		fresh, kept := int64(0), int64(0)
		for n := of.Folded + 1; n <= of.Newest; n++ {
			for m := range w.m.sets[w.set("f", g, int(n))].members {
				listed[g][m] = true
				fresh++
			}
		}
		for i := range 3 {
			for _, m := range w.m.buckets[w.set("b", g, i)].members {
				listed[g][m] = true
				kept++
			}
		}
		assert.LessOrEqual(w.t, of.Fresh+of.Kept, fresh+kept, "what head counts")
		assert.False(w.t, !w.m.bore && (of.Fresh != fresh || of.Kept != kept),
			"head counts %+v of generation %d, there are %d and %d", of, g, fresh, kept)
	}
	for member, gens := range w.kept {
		for g := range gens {
			in, live := listed[g]
			assert.False(w.t, live && !in[member],
				"member %d of generation %d is in no set that head names", member, g)
		}
	}
}
