package owned

import (
	"errors"
	"fmt"

	"github.com/onceward/onceward/internal/redisscript"
)

// ask looks for IDs in the sets of one partition.
type ask struct {
	o     *Ownership
	items []sought

	epoch uint64
	reply redisscript.OwnReply
}

// sought is an ID that is asked for, and the generations in which it may be: bit i of in says that
// generation oldest+i may have it.
type sought struct {
	member int64
	oldest int64
	in     uint64
}

// anywhere are the generations of one that the filter knows nothing of.
const anywhere = ^uint64(0)

// call names the sets. The fresh ones are looked in for all IDs, which is one command each; a bucket for
// those that it may have. Until take no folding begins: members would move to buckets that were not named.
func (a *ask) call() redisscript.Call {
	o := a.o
	o.folds.RLock()
	o.mu.Lock()
	defer o.mu.Unlock()
	q := redisscript.OwnAsk{Epoch: o.epoch, IDs: make([]int64, len(a.items))}
	a.epoch = o.epoch
	for i := range a.items {
		q.IDs[i] = a.items[i].member
	}
	for gen, g := range o.sets {
		for n := g.Folded + 1; n <= g.Newest; n++ {
			q.Fresh = append(q.Fresh, o.names.fresh(gen, n))
		}
		if g.folding {
			q.Buckets = a.buckets(q.Buckets, gen)
		}
	}
	return redisscript.NewOwnAsk(o.keys(), &q)
}

// buckets appends those of a generation that the IDs may be in.
func (a *ask) buckets(to []redisscript.OwnBucket, gen int64) []redisscript.OwnBucket {
	of := make(map[int]int) // index in to, by bucket
	for i := range a.items {
		item := &a.items[i]
		if item.in != anywhere && (gen < item.oldest || gen > item.oldest+63 || item.in>>(gen-item.oldest)&1 == 0) {
			continue
		}
		b := a.o.s.members.bucket(item.member)
		at, known := of[b]
		if !known {
			at = len(to)
			of[b] = at
			to = append(to, redisscript.OwnBucket{Key: a.o.names.bucket(gen, b)})
		}
		to[at].Of = append(to[at].Of, i)
	}
	return to
}

// take takes in the answer.
func (a *ask) take(r *redisscript.OwnReply) {
	a.o.folds.RUnlock()
	a.reply = *r
	a.o.heard(r)
	switch {
	case r.Err != nil:
	case r.Answer == redisscript.OwnStale:
		if a.o.staleIn(a.epoch); a.o.lostFor() == nil {
			a.reply.Err = errors.New("owned: ask: the partition was acquired again meanwhile")
		}
	case r.Answer == redisscript.OwnAmnesia:
		a.o.lose(ErrAmnesia)
	case r.Answer != redisscript.OwnFound || len(r.Found) != len(a.items):
		a.reply.Err = fmt.Errorf("owned: ask: script answered %q for %d of %d", r.Answer, len(r.Found), len(a.items))
	}
}
