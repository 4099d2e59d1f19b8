package owned

import (
	"slices"

	"github.com/onceward/onceward/contrib/owned/internal/script"
)

// sentMembers holds the members that answered batch writes have put into one fresh set. They are
// all members of the set if every batch write that named the set was answered, and nothing was
// forgotten since the set began. In that case the set is folded without being read.
type sentMembers struct {
	members []int64
	forgets uint64 // the number of forgets that we knew before we sent the first member
}

// next begins a fresh set. The Ownership's mutex is held.
func (g *generation) next(forgets uint64) {
	g.Newest++
	g.written = 0
	if g.sent == nil {
		g.sent = make(map[uint64]*sentMembers)
	}
	g.sent[g.Newest] = &sentMembers{forgets: forgets}
}

// noteSent notes what a batch write has put into its set. If the batch write got no answer, the
// members of the set are not known until it is read.
func (o *Ownership) noteSent(t *batchWrite) {
	if len(t.Marks)+len(t.Touches) == 0 {
		return
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	g := o.sets[t.Gen]
	if g == nil || g.sent[t.N] == nil {
		return
	}
	switch s := g.sent[t.N]; {
	case t.reply.Err != nil:
		delete(g.sent, t.N)
	case t.wrote():
		for _, id := range t.Marks {
			s.members = append(s.members, script.Marked(id))
		}
		if t.didTouch() {
			for _, id := range t.Touches {
				s.members = append(s.members, script.Touched(id))
			}
		}
	}
}

// takeSent returns the members of a set, each once and in order, if they are known without reading
// the set. It returns them only once.
func (o *Ownership) takeSent(gen int64, n uint64) (members []int64, known bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	g := o.sets[gen]
	if g == nil || g.sent[n] == nil {
		return nil, false
	}
	s := g.sent[n]
	delete(g.sent, n)
	if s.forgets != o.forgets {
		return nil, false
	}
	slices.SortFunc(s.members, byBucket)
	return slices.Compact(s.members), true
}
