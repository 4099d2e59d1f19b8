package owned

import (
	"context"
	"encoding/binary"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
)

var errLostAnswer = errors.New("the answer is lost")

func unanswered(cmd redis.Cmder) {
	if c, ok := cmd.(*redis.Cmd); ok {
		c.SetVal(nil)
	}
	cmd.SetErr(errLostAnswer)
}

// scans counts how often a set is read.
type scans struct {
	commands
	n    atomic.Int64
	lose func(cmds []redis.Cmder) bool // the answers of this pipeline
}

func (s *scans) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "sscan" {
			s.n.Add(1)
		}
		err := next(ctx, cmd)
		if s.lose != nil && s.lose([]redis.Cmder{cmd}) {
			err = errLostAnswer
			unanswered(cmd)
		}
		return err
	}
}

func (s *scans) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		err := next(ctx, cmds)
		for _, cmd := range cmds {
			if cmd.Name() == "sscan" {
				s.n.Add(1)
			}
		}
		if s.lose != nil && s.lose(cmds) {
			for _, cmd := range cmds {
				unanswered(cmd)
			}
			return errLostAnswer
		}
		return err
	}
}

// TestFoldKnowsWhatWasSent: a set is folded without being read if all its batch writes were
// answered. If an answer was lost, the set is read: a mark that the owner does not know would be
// gone with the set.
func TestFoldKnowsWhatWasSent(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(t *testing.T, o *Ownership, s *scans, ids []driver.ID)
		left   func(ids []driver.ID) []driver.ID
		reads  bool
	}{
		"all answered": {},
		"marked twice": {before: func(t *testing.T, o *Ownership, _ *scans, ids []driver.ID) {
			o.mark(t, ids[:30])
		}},
		"an answer lost": {reads: true,
			before: func(t *testing.T, o *Ownership, s *scans, ids []driver.ID) {
				s.lose = func(cmds []redis.Cmder) bool { return true }
				one := &batchWrite{o: o, marks: []member{{is: o.s.members.of(&ids[30])}}}
				o.s.roundTrip(t.Context(), []*batchWrite{one}, nil)
				s.lose = nil
				require.False(t, one.wrote(), "the answer has come")
			}},
		"forgotten here": {reads: true,
			before: func(t *testing.T, o *Ownership, _ *scans, ids []driver.ID) {
				noErr(t, o.s.Forget(t.Context(), ids[:1], 0)[0])
			}, left: func(ids []driver.ID) []driver.ID { return ids[1:] }},
		"forgotten elsewhere": {reads: true,
			before: func(t *testing.T, o *Ownership, _ *scans, ids []driver.ID) {
				other := plainStore(t, o.s.client.(*redis.Client), fewBuckets(o.s.opts.Prefix))
				noErr(t, other.Forget(t.Context(), ids[:1], 0)[0])
			}, left: func(ids []driver.ID) []driver.ID { return ids[1:] }},
	} {
		t.Run(name, func(t *testing.T) {
			_, client := redistest.Mini(t)
			hooked := redistest.Client(t,
				&redis.Options{Addr: client.Options().Addr, MaxRetries: -1})
			s := &scans{}
			hooked.AddHook(s)
			o := takeLoaded(t, plainStore(t, hooked, fewBuckets("sent")), somePartition)
			o.foldAtOnce = 8
			ids := idsOf(t, "marked", 31)
			o.mark(t, ids[:30])
			if tc.before != nil {
				tc.before(t, o, s, ids)
			}
			o.nextSet()
			o.mark(t, idsOf(t, "next", 1))
			s.n.Store(0)
			noErr(t, o.fold(t.Context()))
			assert.Equal(t, tc.reads, s.n.Load() > 0, "the set was read")
			marked := ids[:30]
			if name == "an answer lost" {
				marked = ids
			}
			if tc.left != nil {
				marked = tc.left(marked)
			}
			o.counts(t, marked)
			g := o.state(t).Gens[o.genNow()]
			assert.EqualValues(t, 1, g.Folded)
			assert.Equal(t, int64(len(marked)), g.Kept)
			letGo(t, o)
		})
	}
}

// TestFoldReadsWhatWasNotAnswered: a promoted server may lack a mark that was answered, and have
// one that was not. Then the number of members is as expected, but the members are others.
func TestFoldReadsWhatWasNotAnswered(t *testing.T) {
	_, client := redistest.Mini(t)
	hooked := redistest.Client(t, &redis.Options{Addr: client.Options().Addr, MaxRetries: -1})
	s := &scans{}
	hooked.AddHook(s)
	o := takeLoaded(t, plainStore(t, hooked, fewBuckets("sent")), somePartition)
	ids := idsOf(t, "marked", 31)
	o.mark(t, ids[:30])
	s.lose = func([]redis.Cmder) bool { return true }
	one := &batchWrite{o: o, marks: []member{{is: o.s.members.of(&ids[30])}}}
	o.s.roundTrip(t.Context(), []*batchWrite{one}, nil)
	s.lose = nil
	word := uint64(o.s.members.of(&ids[0])) // 64 bits either way
	member := binary.BigEndian.AppendUint64(nil, word)
	n, err := client.SRem(t.Context(), o.names.fresh(o.genNow(), 1), member).Result()
	require.EqualValues(t, 1, n)
	require.NoError(t, err)
	o.nextSet()
	o.mark(t, idsOf(t, "next", 1))
	noErr(t, o.fold(t.Context()))
	found, err := o.s.askForeign(t.Context(), []partitionRecord{{names: o.names}},
		membersOf(o, ids[30:]))
	noErr(t, err)
	assert.True(t, found[0].done, "the mark whose answer was lost is gone")
}

// TestFoldOfTouches: a touched key, whose inner store is to be asked, is not done, in whatever set
// it is. Otherwise it would be skipped as a duplicate, and be lost.
func TestFoldOfTouches(t *testing.T) {
	_, client := redistest.Mini(t)
	o := takeLoaded(t, plainStore(t, client, fewBuckets("sent")), somePartition)
	ids := idsOf(t, "touched", 20)
	one := &batchWrite{o: o}
	for i := range ids {
		m := member{is: o.s.members.of(&ids[i])}
		if i%2 == 0 {
			one.marks = append(one.marks, m)
		} else {
			one.touches = append(one.touches, m)
		}
	}
	o.s.roundTrip(t.Context(), []*batchWrite{one}, nil)
	o.nextSet()
	o.mark(t, idsOf(t, "next", 1))
	noErr(t, o.fold(t.Context()))
	a := &ask{o: o}
	for _, m := range membersOf(o, ids) {
		a.items = append(a.items, lookup{member: m, in: anywhere})
	}
	o.s.roundTrip(t.Context(), nil, []*ask{a})
	noErr(t, a.reply.Err)
	for i, f := range a.reply.Found {
		assert.Equal(t, i%2 == 0, f.Done())
		assert.Equal(t, i%2 == 1, f.Touched())
	}
}
