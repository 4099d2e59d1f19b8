package redisadapter

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/guard"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// exchange is one call of Finish, Claim, or both, in rounds of one pipeline each. The first round
// does with plain commands what those can do; an item that has then met something that only a
// script can decide goes into the next round.
//
//	end      SET done GET         -> nothing to put right | endScript | restore
//	own      complete.lua         -> nothing to put right | endScript
//	claim    SET claim NX GET     -> acquired | duplicate | claimScript
//	look     GET, or one MGET     -> duplicate | claim | claimScript
//
// The steps of an item only go forward in that table, so there are four rounds at most,
// and nearly always one.
type exchange struct {
	s        *Store
	why      purpose
	at       wire.Reading
	changes  []dedup.Finish
	reqs     []dedup.ClaimRequest
	ended    []dedup.Answer
	claimed  []dedup.Answer
	next     []step
	canaries *guard.Check // nil without an amnesia guard
}

type stepKind uint8

const (
	end stepKind = iota
	own
	endScript
	restore
	look
	claim
	claimScript
)

// step is what is sent for one item in one round.
type step struct {
	kind stepKind
	item int // of changes or of reqs
	cmd  *redis.StringCmd
	// many is the MGET that a look is the nth key of, instead of cmd.
	many *redis.StringSliceCmd
	nth  int
	// script is nil for a plain command, which nearly every step is. An own is the nth key
	// of a script that it shares.
	script *script
}

// written is the value that an end writes.
func (st *step) written() string {
	value, _ := st.cmd.Args()[2].(*string)
	return *value
}

// script is a call, and its reply.
type script struct {
	call  redisscript.Call
	reply redisscript.Reply
}

// calls reports whether the step has a script, and is the one to send it.
func (st *step) calls() bool { return st.script != nil && st.nth == 0 }

// FinishClaim is Finish and then Claim in one round trip. An ID that is in both may be
// claimed first.
func (s *Store) FinishClaim(ctx context.Context, changes []dedup.Finish,
	reqs []dedup.ClaimRequest) (ended, claimed []dedup.Answer) {
	if len(reqs) > 0 {
		if why := s.guard.Closed(ctx); why != nil {
			if len(changes) > 0 { // first: behind them stand effects
				ended, _ = s.FinishClaim(ctx, changes, nil)
			}
			return ended, s.peek(ctx, reqs, why)
		}
	}
	t := &exchange{
		s: s, why: begins, changes: changes, reqs: reqs,
		ended: newAnswers(len(changes)), claimed: newAnswers(len(reqs)),
	}
	if len(changes) > 0 {
		t.why = ends
	}
	if refused := s.call(t.why, func() {
		t.run(ctx)
	}, errorsOf(t.ended, t.claimed)); refused != nil {
		t.refuse(refused)
	} else if len(reqs) > 0 && s.guard.On() {
		s.settle(ctx, t)
	}
	return t.ended, t.claimed
}

// refuse answers what was not sent at all.
func (t *exchange) refuse(why error) {
	for i := range t.ended {
		t.ended[i].Err = wire.Wrap("finish", why)
	}
	for i := range t.claimed {
		t.claimed[i].Err = wire.Wrap("claim", why)
	}
}

// run makes the rounds.
func (t *exchange) run(ctx context.Context) {
	t.at = t.s.clock.Now(ctx)
	if t.s.buckets != nil {
		newCompactExchange(ctx, t).run(ctx)
		return
	}
	t.next = stepSlabs.get(len(t.changes) + len(t.reqs))[:0]
	t.watch(ctx)
	t.planEnds()
	t.planClaims()
	for len(t.next) > 0 {
		round := t.next
		t.next = nil
		err := t.send(ctx, round)
		if err != nil {
			t.fail(round, err)
		} else {
			for i := range round {
				t.read(&round[i])
			}
		}
		stepSlabs.put(round)
	}
}

// watch makes the claims end with a look at the canaries.
func (t *exchange) watch(ctx context.Context) {
	if len(t.reqs) > 0 && t.s.guard.On() {
		t.canaries = t.s.guard.NewCheck(ctx, len(t.reqs),
			func(i int) string { return t.s.key(t.reqs[i].ID) })
	}
}

func (t *exchange) planEnds() {
	for i := range t.changes {
		c := &t.changes[i]
		if err := t.s.checkFinish(c); err != nil {
			t.ended[i].Err = err
			continue
		}
		switch {
		case t.s.completable(c, t.at):
			t.next = append(t.next, step{kind: end, item: i})
		case t.s.shortly(c, t.at):
			t.next = append(t.next, step{kind: own, item: i})
		default:
			t.endByScript(i)
		}
	}
}

func (t *exchange) planClaims() {
	for i := range t.reqs {
		r := &t.reqs[i]
		if err := t.s.checkClaim(r); err != nil {
			t.claimed[i].Err = err
			continue
		}
		switch {
		case !claimable(r, t.at):
			t.claimByScript(i)
		case r.LikelyDuplicate:
			t.next = append(t.next, step{kind: look, item: i})
		default:
			t.next = append(t.next, step{kind: claim, item: i})
		}
	}
}

func (t *exchange) endByScript(i int) {
	t.next = append(t.next, step{kind: endScript, item: i,
		script: &script{call: finishCall(t.s, &t.changes[i])}})
}

func (t *exchange) claimByScript(i int) {
	t.next = append(t.next, step{kind: claimScript, item: i,
		script: &script{call: claimCall(t.s, &t.reqs[i])}})
}

// send makes one round, and returns at the latest when ctx ends.
func (t *exchange) send(ctx context.Context, round []step) error {
	t.completes(round)
	var calls []redisscript.Call
	scripted := 0
	for i := range round {
		if round[i].script != nil {
			scripted++
		}
		if round[i].calls() {
			calls = append(calls, round[i].script.call)
		}
	}
	plain := t.commands(ctx, round, len(round)-scripted)
	looks := t.canaries.Round(claimsIn(round))
	replies, err := t.s.send(ctx, t.why, calls, plain, looks.Queue(ctx))
	if err != nil {
		return err
	}
	t.canaries.Add(looks)
	for i := range round {
		if round[i].calls() {
			round[i].script.reply, replies = replies[0], replies[1:]
		}
	}
	return nil
}

// claimsIn yields the requests that a round is about.
func claimsIn(round []step) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range round {
			if kind := round[i].kind; (kind == claim || kind == claimScript || kind == look) &&
				!yield(round[i].item) {
				return
			}
		}
	}
}

// commands builds the plain commands of a round.
func (t *exchange) commands(ctx context.Context, round []step, n int) []redis.Cmder {
	if n == 0 {
		return nil
	}
	b, looking := newCommandBuilder(n), 0
	for i := range round {
		switch st := &round[i]; st.kind {
		case end:
			rec := doneRecord(&t.changes[st.item], t.at)
			b.key(t.s, t.changes[st.item].ID)
			b.value(&rec)
		case claim:
			rec := claimRecord(&t.reqs[st.item], t.at)
			b.key(t.s, t.reqs[st.item].ID)
			b.value(&rec)
		case look:
			looking++
		}
	}
	many := looking > 1 && t.s.oneServer()
	for i := range round {
		if st := &round[i]; st.kind == look {
			b.key(t.s, t.reqs[st.item].ID)
		}
	}
	b.freeze(n)
	cmds := make([]redis.Cmder, 0, n)
	for i := range round {
		st := &round[i]
		switch st.kind {
		case end:
			st.cmd = b.setDone(ctx, redisscript.Millis(t.changes[st.item].Window))
		case claim:
			st.cmd = b.setClaim(ctx, redisscript.Millis(t.reqs[st.item].Lease)+
				redisscript.Millis(t.reqs[st.item].Hold))
		default:
			continue
		}
		cmds = append(cmds, st.cmd)
	}
	if many {
		return append(cmds, b.mget(ctx, round, looking))
	}
	for i := range round {
		if st := &round[i]; st.kind == look {
			st.cmd = b.get(ctx)
			cmds = append(cmds, st.cmd)
		}
	}
	return cmds
}

// oneServer reports whether a command may take keys of several slots.
func (s *Store) oneServer() bool {
	_, cluster := s.runner.Client().(*redis.ClusterClient)
	return !cluster
}

// fail answers the items of a round whose outcome is not known.
func (t *exchange) fail(round []step, err error) {
	for i := range round {
		switch st := &round[i]; st.kind {
		case end, own, endScript:
			t.ended[st.item] = dedup.Answer{Err: wire.Wrap("finish", err)}
		case restore: // the answer stands
		default:
			t.claimed[st.item] = dedup.Answer{Err: wire.Wrap("claim", err)}
		}
	}
}

// read draws the conclusions of one step.
func (t *exchange) read(st *step) {
	switch st.kind {
	case end:
		t.readEnd(st)
	case own:
		t.readOwn(st)
	case endScript:
		t.ended[st.item] = answer("finish", &t.changes[st.item], st.script.reply, finished)
	case restore:
		// Whether it worked or not, the answer is the value that was found.
	case look:
		t.readLook(st)
	case claim:
		t.readClaim(st)
	case claimScript:
		t.claimed[st.item] = answer("claim", &t.reqs[st.item], st.script.reply, claimedBy)
	}
}

// readClaim reads the reply to SET NX GET. The reply alone can say only "nothing was there" and
// "done"; whether a claim that was met is live is for the server's clock to say.
func (t *exchange) readClaim(st *step) {
	value, absent, err := valueOf(st.cmd)
	switch {
	case absent:
		t.claimed[st.item] = acquired(&t.reqs[st.item], t.at)
	case err != nil && wire.Classify(err) == wire.ClassFull:
		// At full memory the script still tells duplicates, and refuses new claims.
		t.claimByScript(st.item)
	case err != nil:
		t.claimed[st.item] = dedup.Answer{Err: wire.Wrap("claim", err)}
	default:
		t.met(st.item, value)
	}
}

// readLook reads the reply to GET.
func (t *exchange) readLook(st *step) {
	value, absent, err := st.looked()
	switch {
	case absent:
		t.next = append(t.next, step{kind: claim, item: st.item})
	case err != nil:
		t.claimed[st.item] = dedup.Answer{Err: wire.Wrap("claim", err)}
	default:
		t.met(st.item, value)
	}
}

// looked returns what a look has found; no record is empty. MGET takes a key of another
// type for absent; the claim that follows does not.
func (st *step) looked() (value string, absent bool, err error) {
	if st.many == nil {
		return valueOf(st.cmd)
	}
	values, err := st.many.Result()
	if st.nth >= len(values) {
		if err == nil {
			err = fmt.Errorf("MGET returned %d values", len(values))
		}
		return "", false, err
	}
	return values[st.nth], values[st.nth] == "", nil
}

// met answers a claim that has found a value.
func (t *exchange) met(i int, value string) {
	rec, err := wire.DecodeRecord(value)
	if err != nil {
		t.claimed[i] = dedup.Answer{Err: fmt.Errorf("redisadapter: claim: %w: %w",
			dedup.ErrUnreadable, err)}
		return
	}
	left, age, known := rec.Remembered(t.at)
	if !known {
		t.claimByScript(i)
		return
	}
	ans := dedup.Answer{Outcome: dedup.Duplicate, Record: rec.View(left, age)}
	if rec.Fingerprint.Conflicts(t.reqs[i].Fingerprint) {
		ans.Outcome = dedup.Mismatch
	}
	t.claimed[i] = ans
}

// readEnd reads the reply to SET GET: what the completion has overwritten.
func (t *exchange) readEnd(st *step) {
	c := &t.changes[st.item]
	value, absent, err := valueOf(st.cmd)
	switch {
	case absent:
		t.ended[st.item] = dedup.Answer{Written: true, Record: doneView(c)}
		return
	case err != nil && wire.Classify(err) == wire.ClassFull:
		t.endByScript(st.item)
		return
	case err != nil:
		t.ended[st.item] = dedup.Answer{Err: wire.Wrap("finish", err)}
		return
	}
	if claimOf(value, c) {
		t.ended[st.item] = dedup.Answer{Held: true, Written: true, Record: doneView(c)}
		return
	}
	old, err := wire.DecodeRecord(value)
	if err != nil {
		t.putBack(st, value, foreignKeep(value, c.Window))
		t.ended[st.item] = dedup.Answer{Err: fmt.Errorf("redisadapter: finish: %w: %w",
			dedup.ErrUnreadable, err)}
		return
	}
	t.ended[st.item] = t.overwrote(st, c, &old, value)
}

// overwrote answers a plain completion that found old.
func (t *exchange) overwrote(st *step, c *dedup.Finish, old *wire.Record,
	value string) dedup.Answer {
	terminal := old.State == redisscript.Succeeded || old.State == redisscript.Failed
	switch {
	case terminal && old.Half() == [8]byte(c.Token[:8]):
		// Sent again: the first reply, which said what was overwritten, is lost. Before the end of
		// the claim that can only have been the claim, or that of a newer generation that had taken
		// it over: which, is not known any more, and the effect has landed.
		ans := t.undo(st, c, old, value)
		ans.Held, ans.Written = !old.Late && time.Now().Before(c.Until), true
		return ans
	case terminal, c.Fence <= old.Floor:
		return t.undo(st, c, old, value)
	}
	// The claim of somebody else, or what is left of one. Its fence must not be lost: it
	// is what Forget cuts owners off by.
	rec := doneRecord(c, t.at)
	rec.Late, rec.Fence, rec.Attempt = true, max(rec.Fence, old.Fence),
		max(rec.Attempt, old.Attempt)
	t.putBack(st, wire.EncodeRecord(&rec), c.Window)
	return dedup.Answer{Written: true, Record: rec.View(c.Window, 0)}
}

// foreignKeep is how long a value is kept that could not be read and is put back. A record of a
// newer version expires as ours do, because that version could not read it without an expiry
// either. A value that is none of ours stays forever. Zero is forever.
func foreignKeep(value string, window time.Duration) time.Duration {
	if value != "" && value[0] > wire.RecordVersion && value[0] < ' ' {
		return window
	}
	return 0
}

// undo puts back a value that must not be overwritten, and returns it. How long it had to live is
// not known: the reply to SET GET does not say.
func (t *exchange) undo(st *step, c *dedup.Finish, old *wire.Record, value string) dedup.Answer {
	left, age, known := old.Remembered(t.at)
	switch {
	case !known && old.State == redisscript.InProgress:
		// Its owner renews it while it lives. Too short a lease would let a third one in.
		lease := c.Lease
		if lease <= 0 {
			lease = c.Window
		}
		left, age = redisscript.FromMillis(int64(old.Span))+lease, 0
	case !known:
		left, age = c.Window, 0
	}
	t.putBack(st, value, max(left, time.Millisecond))
	return dedup.Answer{Record: old.View(left, age)}
}

// putBack replaces what a completion has written by value, unless somebody else has written since.
func (t *exchange) putBack(st *step, value string, keep time.Duration) {
	t.next = append(t.next, step{
		kind: restore, item: st.item,
		script: &script{call: redisscript.NewRestore(t.s.key(t.changes[st.item].ID), st.written(),
			value, keep)},
	})
}
