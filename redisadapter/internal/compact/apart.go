package compact

import (
	"time"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// While a slot moves from one master to another, some of its keys are still at the old one and some
// already at the new one. Keys that do not exist count as being at the new one. Both masters refuse
// a script for a lease and its buckets (TRYAGAIN), until the slot has moved: that may take minutes.
//
// A command for one key is always answered, by the master that has the key. So the steps that a
// script takes at one moment are taken one after the other, each after the reply to the one before.
// The lease is claimed, then membership is read; the member is added, then the lease is dropped.
// These two orders make the layout correct.
//
//	claimApart  claim.lua for the lease alone  -> the answer, or acquired: seekApart
//	seekApart   SISMEMBER in each bucket       -> acquired | duplicate, giveBack
//	addMember   SADD bucket                    -> drop
//	endApart    finish.lua for the lease alone
func (t *exchange) claimApart(i int) {
	t.next = append(t.next, bucketStep{kind: claimApart, item: i})
}

// readClaimApart reads what the script says of the lease. Acquired is not the answer until
// membership has been read.
func (t *exchange) readClaimApart(st *bucketStep) {
	a := wire.AnswerOf("claim", &t.Reqs[st.item], st.reply, wire.ClaimedBy)
	t.Claimed[st.item] = a
	if a.Err == nil && a.Outcome == driver.Acquired {
		t.next = append(t.next, bucketStep{kind: seekApart, item: st.item, apart: true})
	}
}

// readSeekApart reads the membership that was asked for after the lease was ours.
func (t *exchange) readSeekApart(st *bucketStep) {
	generation, member, err := t.found(st)
	if err == nil && !member && !t.covered() {
		err = &wire.EdgeError{At: t.present()}
	}
	switch {
	case member:
		t.duplicate(st.item, generation)
	case err != nil:
		t.Claimed[st.item] = driver.Answer{Err: wire.Wrap("claim", err)}
	default:
		return
	}
	t.next = append(t.next, bucketStep{kind: giveBackWithScript, item: st.item})
}

// endApart ends a claim without a script for lease and buckets, if that is safe. A change that
// makes its key a member is safe only as long as the lease is certainly ours. A change that keeps a
// record where the lease is, or gives the lease up, is also safe when only we could have the key.
func (t *exchange) endApart(st *bucketStep) bool {
	c := &t.Changes[st.item]
	switch {
	case ownEnd(c) && c.EffectApplied && t.b.exact(t.At):
		t.next = append(t.next, bucketStep{kind: addMember, item: st.item,
			generation: t.b.generation(t.At), first: true, added: st.added, apart: true})
	case c.State == driver.StateReleased, !member(c) && c.Fence != 0 &&
		time.Now().Before(c.Until):
		t.next = append(t.next, bucketStep{kind: endApart, item: st.item})
	default:
		return false
	}
	return true
}
