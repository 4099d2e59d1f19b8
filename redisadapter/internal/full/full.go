// Package full is the layout with one record a key.
package full

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/engine"
	"github.com/onceward/onceward/redisadapter/internal/line"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// Layout is [engine.Layout] of one record a key.
type Layout struct {
	prefix string
	// slotted is set when a server has refused a script because its keys are in several slots.
	slotted atomic.Bool
	// compares says that every server knows SET IFEQ.
	compares atomic.Bool
}

// Compare sets whether every server knows SET IFEQ. If not, ends that have a result are written by
// scripts.
func (l *Layout) Compare(yes bool) { l.compares.Store(yes) }

// New returns the layout of the keys of a prefix.
func New(prefix string) *Layout { return &Layout{prefix: prefix} }

// AppendKey implements [engine.Layout].
func (l *Layout) AppendKey(b []byte, id driver.ID) []byte { return wire.AppendKey(b, l.prefix, id) }

// CheckFinish implements [engine.Layout].
func (*Layout) CheckFinish(*driver.Finish) error { return nil }

// CheckClaim implements [engine.Layout].
func (*Layout) CheckClaim(*driver.ClaimRequest) error { return nil }

// Each implements [engine.Layout].
func (*Layout) Each(ctx context.Context, e *engine.Engine, b *engine.Batch[driver.ID],
	ids []driver.ID) []driver.Answer {
	return b.Send(ctx, e.Line, ids)
}

var stepSlabs wire.Slabs[step]

// exchange is one call of Finish, Claim, or both, in rounds of one pipeline each. The first round
// sends plain commands where they can do the work. An item that meets something that only a script
// can decide goes into the next round.
//
//	end      SET done GET         -> nothing to put right | endScript | restore
//	swap     SET end IFEQ claim   -> nothing to put right | endScript
//	own      complete.lua         -> nothing to put right | endScript
//	claim    SET claim NX GET     -> acquired | duplicate | claimScript
//	look     GET, or one MGET     -> duplicate | claim | claimScript
//
// The steps of an item only go forward in that table, so there are four rounds at most,
// and nearly always one.
type exchange struct {
	*engine.Exchange
	l    *Layout
	next []step
}

type stepKind uint8

const (
	end stepKind = iota
	swap
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
	// many is used instead of cmd for a look that is the nth key of an MGET.
	many *redis.StringSliceCmd
	nth  int
	// script is nil for a plain command, which nearly every step is. A step of kind own is the nth
	// key of a script that it shares.
	script *script
}

// written returns the value that an end writes.
func (st *step) written() string {
	value, _ := st.cmd.Args()[2].(*string)
	return *value
}

// script is a call, and its reply.
type script struct {
	call  redisscript.Call
	reply redisscript.Reply
}

// calls reports whether the step has a script, and is the step that sends it.
func (st *step) calls() bool { return st.script != nil && st.nth == 0 }

// Run implements [engine.Layout].
func (l *Layout) Run(ctx context.Context, x *engine.Exchange) {
	t := &exchange{Exchange: x, l: l, next: stepSlabs.Get(len(x.Changes) + len(x.Reqs))[:0]}
	x.Watch(ctx)
	t.planEnds()
	t.planClaims()
	for len(t.next) > 0 {
		round := t.next
		t.next = nil
		t.completes(round)
		b, plain := t.commands(ctx, round)
		once := hasEnd(round)
		if once {
			plain[0] = redisscript.Once(plain[0]) // applies to the whole pipeline
		}
		looks := x.Canaries.Round(claimsIn(round))
		replies, err := x.Line.Send(ctx, x.Why, line.Pipeline{Calls: callsIn(round),
			Plain: plain, Last: looks.Queue(ctx), Once: once})
		switch {
		case errors.Is(err, line.ErrUnanswered):
			t.again(round)
		case err != nil:
			t.fail(round, err)
		default:
			x.Canaries.Add(looks)
			t.read(round, replies)
			if b != nil {
				b.Release()
			}
		}
		stepSlabs.Put(round)
	}
}

func (t *exchange) planEnds() {
	for i := range t.Changes {
		c := &t.Changes[i]
		if err := t.CheckFinish(c); err != nil {
			t.Ended[i].Err = err
			continue
		}
		switch {
		case completable(c, t.At):
			t.next = append(t.next, step{kind: end, item: i})
		case shortly(c, t.At) && !c.Irreversible && t.l.compares.Load():
			t.next = append(t.next, step{kind: swap, item: i})
		case shortly(c, t.At):
			t.next = append(t.next, step{kind: own, item: i})
		default:
			t.endByScript(i)
		}
	}
}

func (t *exchange) planClaims() {
	for i := range t.Reqs {
		r := &t.Reqs[i]
		if err := t.CheckClaim(r); err != nil {
			t.Claimed[i].Err = err
			continue
		}
		switch {
		case t.Asks || !wire.Claimable(r, t.At):
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
		script: &script{call: wire.FinishCall(t.Key(t.Changes[i].ID), &t.Changes[i])}})
}

func (t *exchange) claimByScript(i int) {
	t.next = append(t.next, step{kind: claimScript, item: i,
		script: &script{call: wire.ClaimCall(t.Key(t.Reqs[i].ID), &t.Reqs[i], t.Asks)}})
}

// hasEnd reports whether a round has an end that compares nothing. Its pipeline is sent once: a
// second copy could overwrite what others have written since the first.
func hasEnd(round []step) bool {
	return slices.ContainsFunc(round, func(st step) bool { return st.kind == end })
}

// again plans an unanswered round once more. Its ends now compare the token before they write.
func (t *exchange) again(round []step) {
	for i := range round {
		switch st := &round[i]; st.kind {
		case end, swap, own, endScript:
			t.endByScript(st.item)
		case restore:
			t.next = append(t.next, *st)
		case claimScript:
			t.claimByScript(st.item)
		default:
			t.next = append(t.next, step{kind: st.kind, item: st.item})
		}
	}
}

// callsIn returns the scripts of a round.
func callsIn(round []step) (calls []redisscript.Call) {
	for i := range round {
		if round[i].calls() {
			calls = append(calls, round[i].script.call)
		}
	}
	return calls
}

// read interprets the replies to a round.
func (t *exchange) read(round []step, replies []redisscript.Reply) {
	for i := range round {
		if round[i].calls() {
			round[i].script.reply, replies = replies[0], replies[1:]
		}
	}
	for i := range round {
		t.readStep(&round[i])
	}
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
func (t *exchange) commands(ctx context.Context,
	round []step) (*wire.Commands, []redis.Cmder) {
	n := 0
	for i := range round {
		if round[i].script == nil {
			n++
		}
	}
	if n == 0 {
		return nil, nil
	}
	b := wire.NewCommands(n)
	looking := t.texts(b, round)
	b.Freeze(n)
	cmds := b.List(n)
	for i := range round {
		st := &round[i]
		switch st.kind {
		case end:
			st.cmd = b.SetDone(ctx, redisscript.Millis(t.Changes[st.item].Window))
		case swap:
			st.cmd = b.Swap(ctx, redisscript.Millis(t.Changes[st.item].Window))
		case claim:
			st.cmd = b.SetClaim(ctx, redisscript.Millis(t.Reqs[st.item].Lease)+
				redisscript.Millis(t.Reqs[st.item].Hold))
		default:
			continue
		}
		cmds = append(cmds, st.cmd)
	}
	if looking > 1 && t.OneServer() {
		nth := 0
		many := b.MGet(ctx, looking)
		for i := range round {
			if st := &round[i]; st.kind == look {
				st.many, st.nth = many, nth
				nth++
			}
		}
		return b, append(cmds, many)
	}
	for i := range round {
		if st := &round[i]; st.kind == look {
			st.cmd = b.Get(ctx)
			cmds = append(cmds, st.cmd)
		}
	}
	return b, cmds
}

// texts adds the arguments of the plain commands of a round, those of looks last, and returns how
// many looks there are.
func (t *exchange) texts(b *wire.Commands, round []step) (looking int) {
	for i := range round {
		switch st := &round[i]; st.kind {
		case end:
			rec := wire.DoneRecord(&t.Changes[st.item], t.At)
			b.Key(t.l.prefix, t.Changes[st.item].ID)
			b.Value(&rec)
		case swap:
			c := &t.Changes[st.item]
			b.Key(t.l.prefix, c.ID)
			rec, claimed := endRecord(c, t.At), wire.ClaimedRecord(c)
			b.Value(&rec)
			b.Value(&claimed)
		case claim:
			rec := wire.ClaimRecord(&t.Reqs[st.item], t.At)
			b.Key(t.l.prefix, t.Reqs[st.item].ID)
			b.Value(&rec)
		case look:
			looking++
		}
	}
	for i := range round {
		if st := &round[i]; st.kind == look {
			b.Key(t.l.prefix, t.Reqs[st.item].ID)
		}
	}
	return looking
}

// fail answers the items of a round whose outcome is not known.
func (t *exchange) fail(round []step, err error) {
	for i := range round {
		switch st := &round[i]; st.kind {
		case end, swap, own, endScript:
			t.Ended[st.item] = driver.Answer{Err: wire.Wrap("finish", err)}
		case restore: // the answer stands
		default:
			t.Claimed[st.item] = driver.Answer{Err: wire.Wrap("claim", err)}
		}
	}
}

// readStep interprets the reply to one step.
func (t *exchange) readStep(st *step) {
	switch st.kind {
	case end:
		t.readEnd(st)
	case swap:
		t.readSwap(st)
	case own:
		t.readOwn(st)
	case endScript:
		t.Ended[st.item] = wire.AnswerOf("finish", &t.Changes[st.item], st.script.reply,
			wire.Finished)
	case restore:
		// Ignore whether it worked: the answer already has the value that was found.
	case look:
		t.readLook(st)
	case claim:
		t.readClaim(st)
	case claimScript:
		t.Claimed[st.item] = wire.AnswerOf("claim", &t.Reqs[st.item], st.script.reply,
			wire.ClaimedBy)
	}
}

// readClaim reads the reply to SET NX GET. The reply alone can say only "nothing was there" and
// "done"; whether a claim that it shows is live depends on the server's clock.
func (t *exchange) readClaim(st *step) {
	value, absent, err := wire.ValueOf(st.cmd)
	switch {
	case absent:
		t.Claimed[st.item] = wire.Acquired(&t.Reqs[st.item], t.At)
	case err != nil && wire.Classify(err) == wire.ClassFull:
		// At full memory the script still tells duplicates, and refuses new claims.
		t.claimByScript(st.item)
	case err != nil:
		t.Claimed[st.item] = driver.Answer{Err: wire.Wrap("claim", err)}
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
		t.Claimed[st.item] = driver.Answer{Err: wire.Wrap("claim", err)}
	default:
		t.met(st.item, value)
	}
}

// looked returns the value that a look has found; a record is never empty. MGET takes a key of
// another type for absent; the claim that follows reveals the type.
func (st *step) looked() (value string, absent bool, err error) {
	if st.many == nil {
		return wire.ValueOf(st.cmd)
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
		t.Claimed[i] = driver.Answer{Err: fmt.Errorf("redisadapter: claim: %w: %w",
			driver.ErrUnreadable, err)}
		return
	}
	left, age, known := rec.Remembered(t.At)
	if !known {
		t.claimByScript(i)
		return
	}
	ans := driver.Answer{Outcome: driver.Duplicate, Record: rec.View(left, age)}
	if rec.Fingerprint.Conflicts(t.Reqs[i].Fingerprint) {
		ans.Outcome = driver.Mismatch
	}
	t.Claimed[i] = ans
}

// readEnd reads the reply to SET GET: what the completion has overwritten.
func (t *exchange) readEnd(st *step) {
	c := &t.Changes[st.item]
	value, absent, err := wire.ValueOf(st.cmd)
	switch {
	case absent:
		t.Ended[st.item] = driver.Answer{Written: true, Record: wire.DoneView(c)}
		return
	case err != nil && wire.Classify(err) == wire.ClassFull:
		t.endByScript(st.item)
		return
	case err != nil:
		t.Ended[st.item] = driver.Answer{Err: wire.Wrap("finish", err)}
		return
	}
	if wire.ClaimOf(value, c) {
		t.Ended[st.item] = driver.Answer{Held: true, Written: true, Record: wire.DoneView(c)}
		return
	}
	old, err := wire.DecodeRecord(value)
	if err != nil {
		t.putBack(st, value, foreignKeep(value, c.Window))
		t.Ended[st.item] = driver.Answer{Err: fmt.Errorf("redisadapter: finish: %w: %w",
			driver.ErrUnreadable, err)}
		return
	}
	t.Ended[st.item] = t.overwrote(st, c, &old, value)
}

// overwrote answers a plain completion that found old.
func (t *exchange) overwrote(st *step, c *driver.Finish, old *wire.Record,
	value string) driver.Answer {
	terminal := old.State == redisscript.Succeeded || old.State == redisscript.Failed
	switch {
	case terminal && old.Half() == [8]byte(c.Token[:8]):
		// This is a second send: the first reply, which said what was overwritten, is lost. Before
		// the end of the claim that was either our claim, or the claim of a newer generation that
		// had taken it over. Nobody knows which, and the effect has happened.
		ans := t.undo(st, c, old, value)
		ans.Held, ans.Written = !old.Late && time.Now().Before(c.Until), true
		return ans
	case terminal, c.Fence <= old.Floor:
		return t.undo(st, c, old, value)
	}
	// We overwrote the claim of somebody else, or what is left of one. Its fence must not be lost:
	// Forget cuts off owners by it.
	rec := wire.DoneRecord(c, t.At)
	rec.Late, rec.Fence, rec.Attempt = true, max(rec.Fence, old.Fence),
		max(rec.Attempt, old.Attempt)
	t.putBack(st, wire.EncodeRecord(&rec), c.Window)
	return driver.Answer{Written: true, Record: rec.View(c.Window, 0)}
}

// foreignKeep returns how long an unreadable value lives after it was put back. A record of a newer
// version expires as ours do, because that version could not read it without an expiry either. A
// foreign value stays forever, which is zero.
func foreignKeep(value string, window time.Duration) time.Duration {
	if value != "" && value[0] > wire.RecordVersion && value[0] < ' ' {
		return window
	}
	return 0
}

// undo puts back a value that must not be overwritten, and returns it. The reply to SET GET does
// not say how long the value had to live.
func (t *exchange) undo(st *step, c *driver.Finish, old *wire.Record, value string) driver.Answer {
	left, age, known := old.Remembered(t.At)
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
	return driver.Answer{Record: old.View(left, age)}
}

// putBack replaces what a completion has written by value, unless somebody else has written since.
func (t *exchange) putBack(st *step, value string, keep time.Duration) {
	t.next = append(t.next, step{
		kind: restore, item: st.item,
		script: &script{call: redisscript.NewRestore(t.Key(t.Changes[st.item].ID), st.written(),
			value, keep)},
	})
}

// completable reports whether a completion may overwrite whatever the key holds. The effect has
// happened, so "done" is true whoever holds the key, and the key keeps no result (Record.Plain).
// When it has overwritten a value that must stay, restore puts that back. To make that very rare, a
// completion goes to the script when its claim has ended by our clock, so that it may meet the next
// owner's claim, and when it is sent again.
func completable(c *driver.Finish, at wire.Reading) bool {
	return c.MayOverwrite && c.Result == nil && at.Known() && c.EffectApplied && c.Fence != 0 &&
		c.State == driver.StateSucceeded && c.Window > 0 &&
		time.Now().Before(c.Until)
}
