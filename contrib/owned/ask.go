package owned

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/onceward/onceward/contrib/owned/internal/script"
)

// ask looks for IDs in the sets of one partition.
type ask struct {
	o     *Ownership
	items []lookup

	epoch  uint64
	unread []int64 // generations whose buckets were not named
	reply  script.Reply
}

// lookup is a member to look for, and the generations in which it may be. If bit i of in is set,
// generation oldest+i may have the member.
type lookup struct {
	member int64
	oldest int64
	in     uint64
}

// anywhere stands for all generations, for the case that the filter cannot tell which of them may
// have the member.
const anywhere = ^uint64(0)

// maybe reports whether the member may be in a generation.
func (s *lookup) maybe(gen int64) bool {
	return s.in == anywhere || gen >= s.oldest && gen <= s.oldest+63 && s.in>>(gen-s.oldest)&1 == 1
}

// call names the sets, newest first. The script looks in each fresh set for all IDs, with one
// command for each set. It looks in a bucket only for the IDs that may be there, and only once its
// generation is being folded. No fold has to wait for the ask, because the answer says whether sets
// were folded meanwhile.
func (a *ask) call() script.Call {
	o := a.o
	q := script.Ask{IDs: make([]int64, len(a.items))}
	for i := range a.items {
		q.IDs[i] = a.items[i].member
	}
	a.unread = a.unread[:0]
	var folding []int64
	o.mu.Lock()
	q.Epoch, a.epoch = o.epoch, o.epoch
	gens := make([]int64, 0, len(o.sets))
	for gen := range o.sets {
		gens = append(gens, gen)
	}
	slices.Sort(gens)
	slices.Reverse(gens)
	for _, gen := range gens {
		g := o.sets[gen]
		for n := g.Newest; n > g.Folded; n-- {
			q.Fresh = append(q.Fresh, o.names.fresh(gen, n))
		}
		q.FoldedTo = append(q.FoldedTo, script.FoldedTo{Gen: gen, N: g.Folded})
		if g.folding {
			folding = append(folding, gen)
		} else {
			a.unread = append(a.unread, gen)
		}
	}
	o.mu.Unlock()
	q.Buckets = a.buckets(folding)
	return script.NewAsk(o.keys(), &q)
}

// buckets returns the buckets of the generations gens in which the IDs may be.
func (a *ask) buckets(gens []int64) (all []script.Bucket) {
	type at struct{ bucket, item int }
	var in []at
	of := make([]int, 0, len(gens)*len(a.items))
	for _, gen := range gens {
		in = in[:0]
		for i := range a.items {
			if item := &a.items[i]; item.maybe(gen) {
				in = append(in, at{a.o.s.members.bucket(item.member), i})
			}
		}
		slices.SortFunc(in, func(a, b at) int { return cmp.Compare(a.bucket, b.bucket) })
		for from := 0; from < len(in); {
			first := len(of)
			to := from
			for ; to < len(in) && in[to].bucket == in[from].bucket; to++ {
				of = append(of, in[to].item)
			}
			all = append(all, script.Bucket{Key: a.o.names.bucket(gen, in[from].bucket),
				Of: of[first:len(of):len(of)]})
			from = to
		}
	}
	return all
}

// again reports whether sets were folded into buckets that the ask did not name. A fold sets
// folding before it begins, so the next call names them.
func (a *ask) again() bool {
	if a.reply.Err != nil || !a.reply.Moved {
		return false
	}
	a.o.mu.Lock()
	defer a.o.mu.Unlock()
	return slices.ContainsFunc(a.unread, func(gen int64) bool {
		g := a.o.sets[gen]
		return g == nil || g.folding
	})
}

// take notes the answer.
func (a *ask) take(r *script.Reply) {
	a.reply = *r
	a.o.noteReply(r)
	switch {
	case r.Err != nil:
	case r.Answer == script.AnswerStale:
		if a.o.staleIn(a.epoch); a.o.lostFor() == nil {
			a.reply.Err = errors.New("owned: ask: the partition was acquired again meanwhile")
		}
	case r.Answer == script.AnswerAmnesia:
		a.o.lose(ErrAmnesia)
	case r.Answer != script.AnswerFound || len(r.Found) != len(a.items):
		a.reply.Err = fmt.Errorf("owned: ask: script answered %q for %d of %d", r.Answer,
			len(r.Found), len(a.items))
	}
}
