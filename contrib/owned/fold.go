package owned

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/onceward/onceward/contrib/owned/internal/script"
)

const (
	// foldAtOnce is about how many members one call of a fold moves. Moving them takes half a
	// millisecond of the server's time.
	foldAtOnce = 2048
	// foldTries bounds how often a set is read again because something was forgotten meanwhile.
	foldTries = 16
)

// fold moves the sets that nobody writes to any more into buckets: all but the newest set of the
// newest generation. It takes two round trips, and one for each 2048 members of a set.
func (o *Ownership) fold(ctx context.Context) error {
	for _, f := range o.full() {
		whole := true
		for n := f.first; n <= f.last && whole; n++ {
			var err error
			if whole, err = o.foldSet(ctx, f.gen, n); err != nil {
				return err
			}
		}
	}
	return nil
}

// full is the range of a generation's sets that can be folded.
type full struct {
	gen         int64
	first, last uint64
}

func (o *Ownership) full() (all []full) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, gen := range slices.Sorted(maps.Keys(o.sets)) {
		g := o.sets[gen]
		f := full{gen: gen, first: g.Folded + 1, last: g.Newest}
		if gen >= o.gen && f.last > 0 {
			f.last--
		}
		if f.first <= f.last {
			all = append(all, f)
		}
	}
	return all
}

// foldSet folds one set, and reports whether the next one may be folded. It does not fold a set
// that the server has not seen, because the batch write that should have begun the set never
// arrived.
//
// It takes the number of forgets before it reads the set, because a member that is forgotten after
// the reading must not come back. If this process knows the members of a set, it does not read the
// set. Either way the script compares the number of members and the number of forgets.
func (o *Ownership) foldSet(ctx context.Context, gen int64, n uint64) (bool, error) {
	o.beginFolding(gen)
	for range foldTries {
		o.mu.Lock()
		fold := script.Fold{Fresh: o.names.fresh(gen, n), Gen: gen, N: n,
			Forgets: o.forgets}
		o.mu.Unlock()
		members, known := o.takeSent(gen, n)
		if !known {
			var err error
			if members, err = (reader{o.s.client}).scan(ctx, fold.Fresh); err != nil {
				return false, err
			}
		}
		fold.Count = len(members)
		reply, err := o.move(ctx, &fold, members)
		switch {
		case err != nil:
			return false, err
		case reply.Answer == script.AnswerFolded:
			return o.folded(gen, n, reply.Newest), nil
		case reply.Answer == script.AnswerForgot, reply.Answer == script.AnswerGrown:
			continue
		default:
			return false, fmt.Errorf("owned: fold: script answered %q", reply.Answer)
		}
	}
	return false, errors.New("owned: fold: keys are forgotten all the time")
}

// beginFolding makes later asks name the buckets, because members move there from now on. If an
// earlier ask named no buckets and is answered after the fold, its answer says that sets were
// folded, and it is sent again.
func (o *Ownership) beginFolding(gen int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if g := o.sets[gen]; g != nil {
		g.folding = true
	}
}

// folded notes that a set was folded, and reports whether the server had seen it.
func (o *Ownership) folded(gen int64, n, newest uint64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	g := o.sets[gen]
	if g == nil || n > newest && gen >= o.gen {
		return false
	}
	g.Folded = max(g.Folded, n)
	return true
}

// move sends the members in as many calls as needed, one after the other, and returns the first
// answer that is not AnswerFolded, or the last. The last call removes the set, so it must not run
// when an earlier one got no answer. Members are sorted, which also puts them in the order of their
// buckets. So a repeated call, by the next owner or after a forget, sends each bucket the members
// that are already at the bucket's end, and adds nothing.
func (o *Ownership) move(ctx context.Context, fold *script.Fold,
	members []int64) (script.Reply, error) {
	slices.SortFunc(members, byBucket)
	for {
		var some []int64
		some, members = o.some(members)
		fold.Buckets = o.fills(fold.Gen, some)
		fold.Last = len(members) == 0
		self := o.self()
		reply := o.s.send(ctx, script.NewFold(o.keys(), self, fold))[0]
		if reply.Err != nil {
			return reply, fmt.Errorf("owned: fold: %w", reply.Err)
		}
		o.noteReply(&reply)
		switch {
		case reply.Answer == script.AnswerStale:
			o.staleIn(self.Epoch)
			if err := o.lostFor(); err != nil {
				return reply, err
			}
			return reply, errors.New("owned: fold: the partition was acquired again meanwhile")
		case reply.Answer == script.AnswerAmnesia:
			o.lose(ErrAmnesia)
			return reply, ErrAmnesia
		case reply.Answer != script.AnswerFolded, fold.Last:
			return reply, nil
		}
	}
}

// byBucket orders members so that the members of a bucket are next to each other.
func byBucket(a, b int64) int { return cmp.Compare(uint64(a), uint64(b)) } // 64 bits either way

// some returns the members for one call, and the rest. All members of a bucket go into the same
// call.
func (o *Ownership) some(members []int64) (some, rest []int64) {
	n := min(len(members), cmp.Or(o.foldAtOnce, foldAtOnce))
	for n > 0 && n < len(members) &&
		o.s.members.bucket(members[n]) == o.s.members.bucket(members[n-1]) {
		n++
	}
	return members[:n], members[n:]
}

// fills returns the buckets of members, which are in the order of their buckets.
func (o *Ownership) fills(gen int64, members []int64) (all []script.Fill) {
	for from := 0; from < len(members); {
		b := o.s.members.bucket(members[from])
		to := from + 1
		for to < len(members) && o.s.members.bucket(members[to]) == b {
			to++
		}
		all = append(all, script.Fill{Key: o.names.bucket(gen, b),
			Members: members[from:to]})
		from = to
	}
	return all
}
