package compact

import (
	"context"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/engine"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// exchange is one call of Finish, Claim, or both,
// in rounds of one pipeline each.
//
//	add      SADD bucket (the first PEXPIREAT, too), then one MGET of all leases
//	                                                -> drop | endScript
//	claim    SET lease NX, SISMEMBER buckets        -> acquired | duplicate, giveBack | claimScript
//	look     SISMEMBER buckets                      -> duplicate | claim
//	drop     one DEL of all leases, or GETDEL lease -> the answer to add stands | putBack
//	giveBack GETDEL lease
//
// While a slot moves: see claimApart.
//
// Two orders make it correct. First, Acquired is answered only if membership was read after the
// lease was ours. In one pipeline on one connection, the commands are executed in that order;
// everywhere else one script does both. Second, a lease is dropped only after the server has
// answered that the member was added. So an owner that wins the lease after that sees the member.
type exchange struct {
	*engine.Exchange
	b      *Layout
	took   time.Time // when the reading of At was begun
	view   generations
	places []bucketPosition // of the changes, then of the requests
	next   []bucketStep
	reads  []bucketRead // of the round
	// leases is the MGET of the leases of a round's adds.
	leases *redis.StringSliceCmd
	// moved is the time that a server answered because our view does not cover its clock; it is
	// used from the next round on.
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
	// cmd is SET or GETDEL. seen are the SISMEMBERs, or SADD and the PEXPIREATs that follow it, or
	// the one DEL of all leases.
	cmd  *redis.StringCmd
	seen []*redis.IntCmd
	// look says that the lease is read after an add. lease is its name, which dropOwn drops, and
	// nth its position in the MGET.
	look  bool
	lease *string
	nth   int
	// generation to which an add adds, or the first generation that is searched.
	generation int64
	// first says that an add may be the first to its bucket, and added says that an earlier command
	// has added the member.
	first, added bool
	// apart says that the commands go through the client of the Cluster, which follows
	// redirections, so that each command reaches the node that has its key.
	apart bool
	reply redisscript.Reply
	// putBack replaces written by old, which lives for keep.
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

// ofChange reports whether the step is for a change; if not, it is for a request.
func (st *bucketStep) ofChange() bool { return st.kind <= putBack }

// maxEdges bounds how often one call begins anew because its view does not cover a server's clock:
// the second try has the time of that very server.
const maxEdges = 4

// Run implements [engine.Layout].
func (b *Layout) Run(ctx context.Context, x *engine.Exchange) {
	n := len(x.Changes) + len(x.Reqs)
	t := &exchange{Exchange: x, b: b, places: make([]bucketPosition, n),
		next: make([]bucketStep, 0, n)}
	// Read the clock once more, because present counts from a time before the reading.
	before := time.Now()
	t.know(x.Clock.Now(ctx), before)
	x.Watch(ctx)
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

// know switches to another reading of the server's clock. The reading was begun at took, from which
// present counts how far that clock has run on since.
func (t *exchange) know(at wire.Reading, took time.Time) {
	t.At, t.took, t.view, t.moved = at, took, t.b.view(at), wire.Reading{}
	t.b.recheck(at)
}

// present returns the latest that the server's clock can be at now.
func (t *exchange) present() time.Time {
	since := time.Since(t.took)
	return t.At.At.Add(t.At.Error + since + since/wire.ClockDrift + time.Millisecond)
}

// covered reports whether the view still covers the present, however long the commands have been
// under way. Only then may a key that they did not find be taken for absent.
func (t *exchange) covered() bool {
	return t.At.Known() && t.view.covers(t.b, t.present())
}

func (t *exchange) placeOf(st *bucketStep) bucketPosition {
	if st.ofChange() {
		return t.places[st.item]
	}
	return t.places[len(t.Changes)+st.item]
}

func (t *exchange) idOf(st *bucketStep) driver.ID {
	if st.ofChange() {
		return t.Changes[st.item].ID
	}
	return t.Reqs[st.item].ID
}

// idKey names the record of the key of a step.
func (t *exchange) idKey(st *bucketStep) string { return t.Key(t.idOf(st)) }

func (t *exchange) planEnds() {
	for i := range t.Changes {
		c := &t.Changes[i]
		if err := t.CheckFinish(c); err != nil {
			t.Ended[i].Err = err
			continue
		}
		t.places[i] = t.b.place(c.ID)
		generation := t.b.generation(t.At)
		if t.b.exact(t.At) && c.EffectApplied && ownEnd(c) {
			first := !t.b.ends.has(generation, t.places[i].shard)
			st := bucketStep{kind: addMember, item: i, generation: generation, first: first}
			st.look = t.OneServer() && t.lasts(&st)
			t.next = append(t.next, st)
		} else {
			t.endByScript(i, false)
		}
	}
}

// ownEnd reports whether a change ends a claim whose lease has not ended, and makes its key a
// member. Then nobody else can have the key, and no Forget cuts its owner off, unless a newer
// generation has taken the key over: the reply to the add and the lease decide that.
func ownEnd(c *driver.Finish) bool {
	return member(c) && c.Fence != 0 && time.Now().Before(c.Until)
}

func (t *exchange) planClaims() {
	for i := range t.Reqs {
		r := &t.Reqs[i]
		if err := t.CheckClaim(r); err != nil {
			t.Claimed[i].Err = err
			continue
		}
		t.places[len(t.Changes)+i] = t.b.place(r.ID)
		switch {
		case t.Asks || !wire.Claimable(r, t.At):
			t.claimByScript(i)
		case r.LikelyDuplicate:
			t.next = append(t.next, bucketStep{kind: lookFirst, item: i})
		default:
			t.next = append(t.next, bucketStep{kind: claimLease, item: i})
		}
	}
}

// endByScript ends a claim by the script. It compares the token, and a full server does not refuse
// its add.
func (t *exchange) endByScript(i int, added bool) {
	t.next = append(t.next, bucketStep{kind: endWithScript, item: i, added: added})
}

func (t *exchange) claimByScript(i int) {
	t.next = append(t.next, bucketStep{kind: claimWithScript, item: i})
}

// callOf makes the script's call of a step, with the view of now.
func (t *exchange) callOf(st *bucketStep) redisscript.Call {
	switch st.kind {
	case claimWithScript:
		return wire.ClaimCall(t.idKey(st), &t.Reqs[st.item], t.Asks).
			In(t.b.in(t.view, t.placeOf(st)))
	case claimApart:
		return wire.ClaimCall(t.idKey(st), &t.Reqs[st.item], t.Asks)
	case endApart:
		return wire.FinishCall(t.idKey(st), &t.Changes[st.item])
	case giveBackWithScript:
		return redisscript.NewDrop(t.idKey(st), t.Reqs[st.item].Token)
	case dropWithScript:
		return redisscript.NewDrop(t.idKey(st), t.Changes[st.item].Token)
	case putBack:
		call := redisscript.NewRestore(t.idKey(st), st.written, st.old, st.keep)
		if st.added {
			call = call.In(t.b.in(t.view, t.placeOf(st)))
		}
		return call
	}
	c := &t.Changes[st.item]
	call := wire.FinishCall(t.idKey(st), c).In(t.b.in(t.view, t.placeOf(st)))
	if !member(c) {
		return call
	}
	receipt := receiptLife
	if ownEnd(c) {
		receipt = 0 // its claim has not ended: see readEnd
	}
	st.generation = t.b.generation(t.At)
	return call.Into(st.generation, receipt, st.added)
}

// fail answers the items of a round whose replies did not come.
func (t *exchange) fail(round []bucketStep, err error) {
	for i := range round {
		switch st := &round[i]; st.kind {
		case addMember, endWithScript, endApart:
			t.Ended[st.item] = driver.Answer{Err: wire.Wrap("finish", err)}
		case dropLease, dropOwn, dropWithScript, putBack, giveBack, giveBackWithScript:
			// the answer stands
		default:
			t.Claimed[st.item] = driver.Answer{Err: wire.Wrap("claim", err)}
		}
	}
}
