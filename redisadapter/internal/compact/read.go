package compact

import (
	"errors"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// read interprets the reply to one step.
func (t *exchange) read(st *bucketStep) {
	switch st.kind {
	case addMember:
		t.readAdd(st)
	case endWithScript:
		t.readEnd(st)
	case dropLease:
		value, absent, err := wire.ValueOf(st.cmd)
		if err != nil && !absent && t.careful(err) { // for example, the lease has moved
			t.next = append(t.next, bucketStep{kind: dropWithScript, item: st.item,
				added: st.added})
			return
		}
		t.dropped(st, value, "")
	case dropOwn:
		if _, err := st.seen[0].Result(); err != nil && t.careful(err) {
			t.next = append(t.next, bucketStep{kind: dropLease, item: st.item, added: st.added})
		}
	case dropWithScript:
		t.dropped(st, st.reply.Record, st.reply.Record)
	case putBack:
		// Ignore whether it worked: the answer already has what was found.
	case lookFirst:
		t.readLook(st)
	case claimLease:
		t.readClaim(st)
	case claimWithScript:
		a := wire.AnswerOf("claim", &t.Reqs[st.item], st.reply, wire.ClaimedBy)
		switch {
		case t.again(a.Err):
			t.claimByScript(st.item)
			return
		case redis.IsTryAgainError(a.Err):
			t.claimApart(st.item)
			return
		}
		t.Claimed[st.item] = a
	case claimApart:
		t.readClaimApart(st)
	case seekApart:
		t.readSeekApart(st)
	case endApart:
		t.Ended[st.item] = wire.AnswerOf("finish", &t.Changes[st.item], st.reply, wire.Finished)
	case giveBack:
		if _, absent, err := wire.ValueOf(st.cmd); err != nil && !absent && t.careful(err) {
			t.next = append(t.next, bucketStep{kind: giveBackWithScript, item: st.item})
		}
	case giveBackWithScript:
		// Ignore whether it worked: the lease of a finished key guards nothing, and expires by
		// itself.
	}
}

// again reports whether a script is to be sent once more, because the view did not cover its
// server's clock.
func (t *exchange) again(err error) bool {
	now := time.Now()
	at, edge := wire.AtEdge(err, t.took)
	if !edge || t.edges >= maxEdges*(1+len(t.Changes)+len(t.Reqs)) {
		return false
	}
	t.edges++
	t.moved, t.movedAt = at, now
	return true
}

// readAdd reads the reply to SADD. The lease is dropped only in the next round: a server may refuse
// the SADD and obey the DEL.
func (t *exchange) readAdd(st *bucketStep) {
	c := &t.Changes[st.item]
	n, err := st.seen[0].Result()
	for _, end := range st.seen[1:] {
		err = errors.Join(err, end.Err())
	}
	switch {
	case err != nil && !st.apart && t.careful(err):
		t.endByScript(st.item, n == 1)
		return
	case err != nil:
		t.Ended[st.item] = driver.Answer{Err: wire.Wrap("finish", err)}
		return
	case !time.Now().Before(c.Until), t.b.tooLate(st.generation, t.present()):
		// Perhaps the add was executed when the key already belonged to somebody else, or when
		// others did not look into its bucket any more.
		t.endByScript(st.item, n == 1)
		return
	}
	if st.first {
		t.b.ends.note(st.generation, t.places[st.item].shard, t.b.shards)
	}
	// The add was executed before our lease had ended. If the key was a member before, our own
	// earlier send has added it. Nobody else can have completed it, except a late owner, who has
	// left a record, or a newer generation that took the key over. A newer generation that is done
	// cannot be told from us; one that is at work is seen when the lease is dropped.
	t.Ended[st.item] = t.done(c, true)
	t.drop(st, n == 1 || st.added)
}

// done returns the answer to a change that has made its key a member.
func (t *exchange) done(c *driver.Finish, held bool) driver.Answer {
	rec := wire.DoneRecord(c, t.At)
	return driver.Answer{Held: held, Written: true, Record: rec.View(c.Window, 0)}
}

// drop drops the lease of a finished key. A lease that was seen to be our own after the add is
// dropped together with the other leases of the batch. While it lasts, Forget refuses its key. An
// owner that wants to take the key over, or completes it late, finds the member and writes nothing.
func (t *exchange) drop(add *bucketStep, added bool) {
	st := bucketStep{kind: dropLease, item: add.item, added: added, lease: add.lease,
		apart: add.apart}
	switch {
	case redisscript.FromMillis(t.b.window) <= t.b.dropBy:
		st.kind = dropWithScript
	case t.own(add) && t.lasts(add):
		st.kind = dropOwn
	}
	t.next = append(t.next, st)
}

// lasts reports whether the claim of an add lasts until a command to drop its lease has certainly
// been executed, or given up.
func (t *exchange) lasts(add *bucketStep) bool {
	return time.Until(t.Changes[add.item].Until) > ownBy
}

// own reports whether the lease of an add was still our claim after the member was added.
func (t *exchange) own(add *bucketStep) bool {
	if add.lease == nil || t.leases == nil {
		return false
	}
	values, err := t.leases.Result()
	if err != nil || add.nth >= len(values) {
		return false
	}
	return wire.ClaimOf(values[add.nth], &t.Changes[add.item])
}

// dropped looks at the lease that was dropped after the add. Nearly always it was our own claim, or
// an earlier send has dropped it; written is what the key holds now.
func (t *exchange) dropped(st *bucketStep, found, written string) {
	if found == "" {
		return
	}
	c := &t.Changes[st.item]
	rec, err := wire.DecodeRecord(found)
	switch {
	case err != nil, rec.State == redisscript.InProgress && rec.Owner == c.Token:
	case rec.State == redisscript.Succeeded, rec.State == redisscript.Failed:
		if rec.Half() == [8]byte(c.Token[:8]) {
			return
		}
		// A late owner has completed the key; or a newer generation has taken it over, and has
		// failed.
		left, age, known := rec.Remembered(t.At)
		if !known {
			left, age = c.Window, 0
		}
		t.Ended[st.item] = driver.Answer{Record: rec.View(left, age)}
		t.putBack(st, written, found, max(left, time.Millisecond), st.added &&
			rec.State == redisscript.Failed)
	case c.Fence <= rec.Floor:
		// An earlier send of ours completed the key, and it was forgotten since.
		t.Ended[st.item] = driver.Answer{Record: rec.View(c.Hold, 0)}
		t.putBack(st, written, found, max(c.Hold, time.Second), st.added)
	case written != "":
		// A newer generation has taken the key over, and still has its lease: its owner must find
		// that the key is done.
		t.endByScript(st.item, true)
	default:
		t.Ended[st.item].Held = false
	}
}

// putBack puts back a value that was dropped and is not ours, and takes the member out again if
// remove is set.
func (t *exchange) putBack(st *bucketStep, written, old string, keep time.Duration,
	remove bool) {
	t.next = append(t.next, bucketStep{kind: putBack, item: st.item, written: written, old: old,
		keep: keep, added: remove})
}

// readEnd reads the answer of the script.
func (t *exchange) readEnd(st *bucketStep) {
	c := &t.Changes[st.item]
	if st.reply.Answer == "member" {
		// Before the end of its claim only an earlier send of this owner, or a newer generation,
		// can have added the member. The member does not tell which.
		if ownEnd(c) {
			t.Ended[st.item] = t.done(c, true)
			return
		}
		st.reply.Answer = "refused"
	}
	a := wire.AnswerOf("finish", c, st.reply, wire.Finished)
	switch {
	case t.again(a.Err):
		t.endByScript(st.item, st.added)
		return
	case redis.IsTryAgainError(a.Err) && t.endApart(st):
		return
	}
	// The script uses its server's clock: we know its bucket only while that clock cannot have
	// reached the next generation.
	if a.Written && member(c) && st.generation == t.present().UnixMilli()/t.b.window {
		t.b.ends.note(st.generation, t.places[st.item].shard, t.b.shards)
	}
	t.Ended[st.item] = a
}

// careful reports whether the script is to replace a plain command that was refused. A full server
// runs the script. A node of a Cluster has been asked directly: only the client follows a slot that
// has moved, and never with half of an item's commands.
func (t *exchange) careful(err error) bool {
	var refusal redis.Error
	if errors.As(err, &refusal) {
		return true
	}
	return t.Guard.Cluster != nil && wire.Classify(err) != wire.ClassContext
}

// found reads the SISMEMBERs: the generation the key is a member of, if there is one.
// Only replies without error count. After a connection has broken, replies that were read before
// may be older than the claim that was sent again.
func (t *exchange) found(st *bucketStep) (generation int64, member bool, err error) {
	for i, cmd := range st.seen {
		n, e := cmd.Result()
		switch {
		case e != nil:
			err = e
		case n == 1:
			generation, member = st.generation+int64(i), true
		}
	}
	return generation, member, err
}

// readClaim reads the replies to SET NX and to the SISMEMBERs after it. It does not decode a lease
// that is not ours: nearly always that is a claim, which only the script can judge.
func (t *exchange) readClaim(st *bucketStep) {
	value, _, err := wire.ValueOf(st.cmd)
	won := value == "OK"
	generation, member, unseen := t.found(st)
	if err == nil {
		err = unseen
	}
	switch {
	case err != nil && t.careful(err):
		// At full memory the script still tells duplicates, and refuses new claims.
		t.claimByScript(st.item)
	case err != nil:
		t.Claimed[st.item] = driver.Answer{Err: wire.Wrap("claim", err)}
	case member && won:
		t.duplicate(st.item, generation)
		t.giveBack(st.item, generation)
	case won && t.covered():
		t.Claimed[st.item] = wire.Acquired(&t.Reqs[st.item], t.At)
	case member:
		t.duplicate(st.item, generation)
	default: // if it was won, the script finds our own token, unless it finds a member
		t.claimByScript(st.item)
	}
}

func (t *exchange) duplicate(i int, generation int64) {
	t.Claimed[i] = driver.Answer{Outcome: driver.Duplicate,
		Record: t.b.memberRecord(t.At, generation)}
}

// giveBack drops the lease of a key that is a member. While the key is a member, it does not matter
// whose lease a late command drops; near the end of the member only the script may.
func (t *exchange) giveBack(i int, generation int64) {
	st := bucketStep{kind: giveBack, item: i}
	if t.b.remembered(t.At, generation) <= t.b.dropBy {
		st.kind = giveBackWithScript
	}
	t.next = append(t.next, st)
}

// readLook reads the lookup of a likely duplicate. "Not a member" does not answer the request:
// membership was read without a lease.
func (t *exchange) readLook(st *bucketStep) {
	if generation, member, _ := t.found(st); member {
		t.duplicate(st.item, generation)
		return
	}
	t.next = append(t.next, bucketStep{kind: claimLease, item: st.item})
}
