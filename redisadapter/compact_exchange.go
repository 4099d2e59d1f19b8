package redisadapter

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// compactExchange is exchange for the layout Compact: one call of Finish, Claim, or both,
// in rounds of one pipeline each.
//
//	add      SADD bucket (the first PEXPIREAT, too), then one MGET of all leases
//	                                                -> drop | endScript
//	claim    SET lease NX, SISMEMBER buckets        -> acquired | duplicate, giveBack | claimScript
//	look     SISMEMBER buckets                      -> duplicate | claim
//	drop     one DEL of all leases, or GETDEL lease -> the answer to add stands | putBack
//	giveBack GETDEL lease
//
// While a slot is on the move: see compact_apart.go.
//
// Two orders make it correct. Acquired is answered only if membership was read after the lease was
// ours. In one pipeline on one connection that is the order of the commands; everywhere else one
// script does both. And a lease is dropped only after the server has answered that the member was
// added. So an owner that wins the lease after that sees the member.
type compactExchange struct {
	*exchange
	b      *buckets
	took   time.Time // before at was read
	view   generations
	places []bucketPosition // of the changes, then of the requests
	next   []bucketStep
	reads  []bucketRead // of the round
	// leases is the MGET of those of a round's adds.
	leases *redis.StringSliceCmd
	// moved is what a server has answered that is elsewhere in time; it holds from the
	// next round on.
	moved   wire.Reading
	movedAt time.Time // when that was read
	edges   int
}

type bucketKind uint8

const (
	addMember bucketKind = iota
	endWithScript
	endApart
	dropLease
	dropOwn
	dropWithScript
	putBack
	lookFirst
	claimLease
	claimWithScript
	claimApart
	seekApart
	giveBack
	giveBackWithScript
)

// bucketStep is what is sent for one item in one round.
type bucketStep struct {
	kind bucketKind
	item int // of changes or of reqs
	// cmd is SET or GETDEL, and seen are the SISMEMBERs, or SADD and what goes with
	// it, or the DEL of all.
	cmd  *redis.StringCmd
	seen []*redis.IntCmd
	// look says that the lease is looked at after an add. It is the nth of those, and what
	// dropOwn drops.
	look  bool
	lease *string
	nth   int
	// generation that an add is for, or the first that is looked at.
	generation int64
	// first says that an add may be the first to its bucket, and added, that an earlier
	// command has made it.
	first, added bool
	// apart: the commands go through the client, which follows each of them to where its
	// key has gone.
	apart bool
	reply redisscript.Reply
	// written and old are what putBack replaces by what, for keep.
	written, old string
	keep         time.Duration
}

func (st *bucketStep) scripted() bool {
	switch st.kind {
	case endWithScript, endApart, dropWithScript, putBack, claimWithScript, claimApart,
		giveBackWithScript:
		return true
	}
	return false
}

// single reports whether the step has plain commands of its own.
func (st *bucketStep) single() bool { return !st.scripted() && st.kind != dropOwn }

// ofChange reports whether the step is for a change, or else for a request.
func (st *bucketStep) ofChange() bool { return st.kind <= putBack }

// maxEdges bounds how often one call begins anew because the clock of a server is
// elsewhere: the second try has that very server's time.
const maxEdges = 4

func newCompactExchange(ctx context.Context, shared *exchange) *compactExchange {
	n := len(shared.changes) + len(shared.reqs)
	t := &compactExchange{exchange: shared, b: shared.s.buckets, places: make([]bucketPosition, n),
		next: make([]bucketStep, 0, n)}
	// Read anew: the time that has passed since is counted from before the reading.
	before := time.Now()
	t.know(t.s.clock.Now(ctx), before)
	t.watch(ctx)
	return t
}

// run makes the rounds.
func (t *compactExchange) run(ctx context.Context) {
	t.planEnds()
	t.planClaims()
	for len(t.next) > 0 {
		round := t.next
		t.next = nil
		if err := t.send(ctx, round); err != nil {
			t.fail(round, err)
			break
		}
		for i := range round {
			t.read(&round[i])
		}
		if t.moved.Known() {
			t.know(t.moved, t.movedAt)
		}
	}
}

// know goes by another reading, which was begun at a time: whatever this process has
// waited for since, the server's clock has run on.
func (t *compactExchange) know(at wire.Reading, took time.Time) {
	t.at, t.took, t.view, t.moved = at, took, t.b.view(at), wire.Reading{}
	t.b.recheck(at)
}

// present is the latest that the server's clock can be at now.
func (t *compactExchange) present() time.Time {
	since := time.Since(t.took)
	return t.at.At.Add(t.at.Error + since + since/wire.ClockDrift + time.Millisecond)
}

// covered reports whether the view still covers the present, whatever the commands that
// were sent have waited for: only then is what they have not found not there.
func (t *compactExchange) covered() bool {
	return t.at.Known() && t.view.covers(t.b, t.present())
}

func (t *compactExchange) placeOf(st *bucketStep) bucketPosition {
	if st.ofChange() {
		return t.places[st.item]
	}
	return t.places[len(t.changes)+st.item]
}

func (t *compactExchange) idOf(st *bucketStep) dedup.ID {
	if st.ofChange() {
		return t.changes[st.item].ID
	}
	return t.reqs[st.item].ID
}

func (t *compactExchange) planEnds() {
	for i := range t.changes {
		c := &t.changes[i]
		if err := t.s.checkFinish(c); err != nil {
			t.ended[i].Err = err
			continue
		}
		t.places[i] = t.b.place(c.ID)
		generation := t.b.generation(t.at)
		if t.b.exact(t.at) && c.Landed && t.s.ownEnd(c) {
			first := !t.b.ends.has(generation, t.places[i].shard)
			st := bucketStep{kind: addMember, item: i, generation: generation, first: first}
			st.look = t.s.oneServer() && t.lasts(&st)
			t.next = append(t.next, st)
		} else {
			t.endByScript(i, false)
		}
	}
}

// ownEnd reports whether a change is the end of a claim whose lease has not ended, and
// makes its key a member. Nobody else can have the key, and no Forget cuts its owner off,
// unless a newer generation has taken it over: then what the add finds is looked at.
func (s *Store) ownEnd(c *dedup.Finish) bool {
	return member(c) && c.Fence != 0 && time.Now().Before(c.Until)
}

func (t *compactExchange) planClaims() {
	for i := range t.reqs {
		r := &t.reqs[i]
		if err := t.s.checkClaim(r); err != nil {
			t.claimed[i].Err = err
			continue
		}
		t.places[len(t.changes)+i] = t.b.place(r.ID)
		switch {
		case !claimable(r, t.at):
			t.claimByScript(i)
		case r.LikelyDuplicate:
			t.next = append(t.next, bucketStep{kind: lookFirst, item: i})
		default:
			t.next = append(t.next, bucketStep{kind: claimLease, item: i})
		}
	}
}

// endByScript ends by the script, which compares the token, and whose add a full server
// does not refuse.
func (t *compactExchange) endByScript(i int, added bool) {
	t.next = append(t.next, bucketStep{kind: endWithScript, item: i, added: added})
}

func (t *compactExchange) claimByScript(i int) {
	t.next = append(t.next, bucketStep{kind: claimWithScript, item: i})
}

// callOf makes the script's call of a step, with the view of now.
func (t *compactExchange) callOf(st *bucketStep) redisscript.Call {
	switch st.kind {
	case claimWithScript:
		return claimCall(t.s, &t.reqs[st.item]).In(t.b.in(t.view, t.placeOf(st)))
	case claimApart:
		return claimCall(t.s, &t.reqs[st.item])
	case endApart:
		return finishCall(t.s, &t.changes[st.item])
	case giveBackWithScript:
		return redisscript.NewDrop(t.s.key(t.reqs[st.item].ID), t.reqs[st.item].Token)
	case dropWithScript:
		return redisscript.NewDrop(t.s.key(t.changes[st.item].ID), t.changes[st.item].Token)
	case putBack:
		call := redisscript.NewRestore(t.s.key(t.changes[st.item].ID), st.written, st.old, st.keep)
		if st.added {
			call = call.In(t.b.in(t.view, t.placeOf(st)))
		}
		return call
	}
	c := &t.changes[st.item]
	call := finishCall(t.s, c).In(t.b.in(t.view, t.placeOf(st)))
	if !member(c) {
		return call
	}
	receipt := receiptLife
	if t.s.ownEnd(c) {
		receipt = 0 // it is known by its time
	}
	st.generation = t.b.generation(t.at)
	return call.Into(st.generation, receipt, st.added)
}

// fail answers the items of a round whose replies did not come.
func (t *compactExchange) fail(round []bucketStep, err error) {
	for i := range round {
		switch st := &round[i]; st.kind {
		case addMember, endWithScript, endApart:
			t.ended[st.item] = dedup.Answer{Err: wire.Wrap("finish", err)}
		case dropLease, dropOwn, dropWithScript, putBack, giveBack, giveBackWithScript:
			// the answer stands
		default:
			t.claimed[st.item] = dedup.Answer{Err: wire.Wrap("claim", err)}
		}
	}
}

// edgeError says that the buckets which a script was given do not cover the window
// before the server's clock.
type edgeError struct{ at time.Time }

func (e *edgeError) Error() string {
	return fmt.Sprintf("the server's clock, at %v, is not where it was",
		e.at.UTC().Format(time.RFC3339Nano))
}

// atEdge returns the reading that a server has answered instead of a script's answer.
func atEdge(err error, sent time.Time) (wire.Reading, bool) {
	var edge *edgeError
	if !errors.As(err, &edge) {
		return wire.Reading{}, false
	}
	return wire.Reading{At: edge.at, Error: time.Since(sent) + time.Millisecond}, true
}
