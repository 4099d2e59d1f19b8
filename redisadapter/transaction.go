package redisadapter

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/backoff"
	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/line"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

const (
	// conflictTries bounds how often an effect is called because a watched key changed.
	conflictTries = 16
	// movedTries is how many redirections mean that a key is in another slot, and not that a slot
	// moves.
	movedTries = 3
)

// transaction is the Completion.With of [Store.Atomic]: it passes through the core to Finish. One
// goroutine uses it.
//
// A record is written by a plain SET, not by the finish script: EXEC undoes nothing, and a script
// that is refused inside it (NOSCRIPT) would leave the effect without its record. The comparisons
// of the script have been made before, and WATCH makes sure that they still hold.
type transaction struct {
	store  *Store
	effect Effect
	watch  []string

	asked   bool  // Finish has seen it
	done    bool  // effect and record are there
	lost    bool  // the claim was not ours; nothing was done
	partial error // of a command of the effect, in a transaction that was executed
	final   error // why it makes no sense to try again; nothing was done
	unknown error // why the outcome of the last try is not known

	conflicts, moved int
}

// transactionOf returns the transaction of a call of Finish, or nil if it has none. Such a call has
// one item: only Atomic makes it. An item with any other With is refused.
func (s *Store) transactionOf(changes []driver.Finish) *transaction {
	if len(changes) != 1 {
		return nil
	}
	if tx, ok := changes[0].With.(*transaction); ok && tx != nil && tx.store == s {
		return tx
	}
	return nil
}

// finish is Finish with a transaction.
func (t *transaction) finish(ctx context.Context, c *driver.Finish) []driver.Answer {
	answers := make([]driver.Answer, 1)
	t.asked = true
	plain := *c
	plain.With = nil
	if err := t.store.engine.CheckFinish(&plain); err != nil {
		answers[0].Err = err
		return answers
	}
	// If t.final is set, the server has answered. An error that the effect returned may come from
	// anywhere, and says nothing about the server.
	outcome := func(yield func(error) bool) {
		if t.final != nil {
			yield(nil)
			return
		}
		yield(answers[0].Err)
	}
	refused := t.store.engine.Line.Call(line.Ends, func() {
		answers[0] = t.run(ctx, t.store, c)
	}, outcome)
	if refused != nil {
		t.unknown = wire.Wrap("atomic", refused)
		answers[0].Err = t.unknown
	}
	return answers
}

// run tries until the outcome of the transaction is known, or ctx ends.
func (t *transaction) run(ctx context.Context, s *Store, c *driver.Finish) driver.Answer {
	if err := s.mayTransact(ctx, c); err != nil {
		return t.settle(err)
	}
	pause := backoff.Policy{Base: time.Millisecond, Cap: 50 * time.Millisecond}
	for try := 0; ; try++ {
		ans, err := t.once(ctx, s, c)
		if err == nil {
			return ans
		}
		if !errors.Is(err, redis.TxFailedErr) {
			return t.settle(err)
		}
		if t.conflicts++; t.conflicts >= conflictTries {
			t.final = ErrConflict
			return t.settle(err)
		}
		if err := backoff.Sleep(ctx, pause.Delay(try, 0, nil)); err != nil {
			return t.settle(err)
		}
	}
}

// settle answers a try that run does not repeat. If its outcome is not known, the core sends again;
// after a permanent error it does not.
func (t *transaction) settle(err error) driver.Answer {
	t.unknown = wire.Wrap("atomic", err)
	if t.final == nil && isRefusal(err) {
		t.final = t.refused(err)
	}
	if t.final != nil {
		return driver.Answer{Err: dedup.Permanent(t.final)}
	}
	return driver.Answer{Err: t.unknown}
}

// refusal is an error reply to MULTI or to what followed: EXEC did nothing.
type refusal struct{ error }

func (r refusal) Unwrap() error { return r.error }

func isRefusal(err error) bool {
	var r refusal
	return errors.As(err, &r)
}

// refused returns why the same commands would be refused again, nil when they may succeed.
func (t *transaction) refused(err error) error {
	switch wire.Classify(err) {
	case wire.ClassFull, wire.ClassDenied, wire.ClassUnreadable, wire.ClassOther:
		return wire.Wrap("atomic", err)
	case wire.ClassMoved:
		if t.moved++; t.moved >= movedTries {
			return fmt.Errorf("redisadapter: atomic: a key of the effect is not in the claim's slot (see HashTag): %w", err)
		}
	}
	return nil
}

// once is one WATCH and, if the claim is ours, one EXEC.
func (t *transaction) once(ctx context.Context, s *Store, c *driver.Finish) (ans driver.Answer,
	err error) {
	key := s.engine.Key(c.ID)
	err = s.client().Watch(ctx, func(tx *redis.Tx) error {
		met, err := meet(ctx, tx, key)
		if err != nil {
			return err
		}
		if ans, err = t.judge(met, c); err != nil || t.done || t.lost {
			return err
		}
		rec := met.completed(c)
		ans = driver.Answer{Held: true, Written: true, Record: rec.View(c.Window, 0)}
		ans.Record.Result = bytes.Clone(rec.Result)
		return t.write(ctx, tx, key, wire.EncodeRecord(&rec), c.Window)
	}, append([]string{key}, t.watch...)...)
	// go-redis exports no such error
	if err != nil && strings.Contains(err.Error(), "Watch requires all keys") {
		t.final = input("Watch", "has a key in another slot than the claim's; see HashTag")
	}
	return ans, err
}

// watched is what a key holds under WATCH.
type watched struct {
	found bool
	rec   wire.Record
	left  time.Duration
	now   int64 // ms
}

// meet reads the record under WATCH, on its connection.
func meet(ctx context.Context, tx *redis.Tx, key string) (m watched, err error) {
	pipe := tx.Pipeline()
	get, ttl, now := pipe.Get(ctx, key), pipe.PTTL(ctx, key), pipe.Time(ctx)
	if _, err := pipe.Exec(ctx); err != nil && !errors.Is(err, redis.Nil) {
		return m, err
	}
	m.now, m.left = now.Val().UnixMilli(), ttl.Val()
	raw, err := get.Result()
	if errors.Is(err, redis.Nil) {
		return m, nil
	}
	if m.rec, err = wire.DecodeRecord(raw); err != nil {
		return m, fmt.Errorf("%w: %w", driver.ErrUnreadable, err)
	}
	if m.rec.State == redisscript.InProgress {
		m.left -= redisscript.FromMillis(int64(m.rec.Span))
	}
	m.found = true
	return m, nil
}

// judge answers when the transaction must not be written: it was written already, or the claim is
// somebody else's.
func (t *transaction) judge(m watched, c *driver.Finish) (ans driver.Answer, err error) {
	switch {
	case m.found && m.rec.State == redisscript.InProgress && m.rec.Owner == c.Token:
		return ans, nil
	case m.found && m.rec.State == redisscript.Succeeded && m.rec.Half() == [8]byte(c.Token[:8]):
		t.done = true
		ans.Held, ans.Written = !m.rec.Late, true
	default:
		t.lost = true
	}
	if m.found {
		age := redisscript.FromMillis(m.now - int64(m.rec.Span))
		if m.rec.State != redisscript.Succeeded && m.rec.State != redisscript.Failed {
			age = 0
		}
		ans.Record = m.rec.View(m.left, max(age, 0))
	}
	return ans, nil
}

// completed returns the record that an owner's completion leaves: what finish.lua writes.
func (m *watched) completed(c *driver.Finish) wire.Record {
	r := wire.Record{
		State: redisscript.Succeeded, Fence: m.rec.Fence, Attempt: m.rec.Attempt,
		Owner: wire.FirstHalf(c.Token),
		Span:  uint64(m.now), Kept: uint64(max(redisscript.Millis(c.Window), 1)),
		NoResult: c.NoResult, Fingerprint: c.Fingerprint, Origin: c.Origin, Label: c.Label,
		Result: c.Result,
	}
	if r.Fingerprint == (driver.Fingerprint{}) {
		r.Fingerprint = m.rec.Fingerprint
	}
	if r.Origin == (driver.Origin{}) {
		r.Origin = m.rec.Origin
	}
	if r.Label == "" {
		r.Label = m.rec.Label
	}
	if r.Plain = m.rec.Plain; r.Plain && r.Result != nil {
		r.Result, r.NoResult = nil, true // a late copy of a plain end would replace it
	}
	return r
}

// write lets the effect queue its commands, and sends them with the record's.
func (t *transaction) write(ctx context.Context, tx *redis.Tx, key, value string,
	keep time.Duration) error {
	fence := &txFence{}
	tx.AddHook(fence)
	pipe := tx.TxPipeline()
	if t.final = t.effect(tx, pipe); t.final != nil {
		return t.final
	}
	if fence.crossed || slices.ContainsFunc(pipe.Cmds(), ofTransactions) {
		t.final = input("Effect", "has sent a command that is for the transaction to send")
		return t.final
	}
	fence.open = true
	set := pipe.Do(ctx, "set", key, value, "px", max(redisscript.Millis(keep), 1))
	cmds, err := pipe.Exec(ctx)
	if set.Err() == nil && set.Val() != nil {
		t.done, t.partial = true, firstFailure(cmds)
		return nil
	}
	return execError(cmds, err)
}

// firstFailure returns the error of a command that was executed and failed, nil when there is none.
func firstFailure(cmds []redis.Cmder) error {
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return fmt.Errorf("%w: %w", ErrPartial, err)
		}
	}
	return nil
}

// execError says why EXEC did nothing, or that this is not known. A queued command's own error
// reply says more than EXECABORT does.
func execError(cmds []redis.Cmder, err error) error {
	var reply redis.Error
	switch {
	case errors.Is(err, redis.TxFailedErr):
		return redis.TxFailedErr
	case !errors.As(err, &reply):
		return err
	}
	for _, cmd := range cmds {
		if cause := cmd.Err(); errors.As(cause, &reply) && !redis.IsExecAbortError(cause) {
			return refusal{cause}
		}
	}
	return refusal{err}
}

// multi says whether the server has executed a MULTI of ours.
type multi struct{ proven atomic.Bool }

// mayTransact finds out once whether the server lets this user use MULTI. The effect must not be
// the first to try it: where MULTI alone is refused, the commands after it are executed, one after
// the other.
func (s *Store) mayTransact(ctx context.Context, c *driver.Finish) error {
	if s.multi.proven.Load() {
		return nil
	}
	err := s.client().Watch(ctx, func(tx *redis.Tx) error {
		_, err := tx.TxPipelined(ctx, func(pipe redis.Pipeliner) error {
			return pipe.PTTL(ctx, s.engine.Key(c.ID)).Err()
		})
		return err
	}, s.engine.Key(c.ID))
	if err == nil || errors.Is(err, redis.TxFailedErr) {
		s.multi.proven.Store(true)
		return nil
	}
	if wire.Classify(err) == wire.ClassDenied ||
		strings.Contains(err.Error(), "NOPERM") { // in an EXECABORT
		return refusal{err}
	}
	return err
}

// unrecorded runs the effect of a claim that was not won, as if there were no Deduper.
func (t *transaction) unrecorded(ctx context.Context, client redis.UniversalClient) error {
	run := func(read redis.Cmdable, pipe redis.Pipeliner) error {
		if err := t.effect(read, pipe); err != nil || pipe.Len() == 0 {
			return err
		}
		cmds, err := pipe.Exec(ctx)
		if failed := firstFailure(cmds); failed == nil {
			return nil
		}
		return err
	}
	if len(t.watch) == 0 {
		return run(client, client.TxPipeline())
	}
	for range conflictTries {
		err := client.Watch(ctx, func(tx *redis.Tx) error {
			return run(tx, tx.TxPipeline())
		}, t.watch...)
		if !errors.Is(err, redis.TxFailedErr) {
			return err
		}
	}
	return ErrConflict
}

// txFence keeps an effect from ending the transaction by itself: EXEC and UNWATCH would
// end the WATCH as well, and a claim that was lost would go unnoticed.
type txFence struct{ open, crossed bool }

var errFenced = errors.New("redisadapter: an effect must leave the transaction alone")

func (f *txFence) guard(cmds ...redis.Cmder) error {
	if f.open || !slices.ContainsFunc(cmds, ofTransactions) {
		return nil
	}
	f.crossed = true
	for _, cmd := range cmds {
		cmd.SetErr(errFenced)
	}
	return errFenced
}

func ofTransactions(cmd redis.Cmder) bool {
	switch cmd.Name() {
	case "multi", "exec", "discard", "unwatch", "reset":
		return true
	}
	return false
}

// DialHook implements [redis.Hook].
func (f *txFence) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook implements [redis.Hook].
func (f *txFence) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if err := f.guard(cmd); err != nil {
			return err
		}
		return next(ctx, cmd)
	}
}

// ProcessPipelineHook implements [redis.Hook].
func (f *txFence) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		if err := f.guard(cmds...); err != nil {
			return err
		}
		return next(ctx, cmds)
	}
}
