package redisadapter

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// Effect is an effect that lives in Redis. It reads with read, which answers at once, and queues
// commands on write; they run later, in the transaction that also records the key. When it returns
// an error, nothing is done.
//
// It may be called several times, one after the other, and must start afresh each time: only the
// commands of its last call count. Only the values of watched keys are certain to be unchanged when
// its commands run. The commands that it queues have their results when Atomic has returned nil,
// unless a reply was lost on the way: nil then means that they were executed, and their results are
// not known.
//
// It must leave the transaction alone: MULTI, EXEC, DISCARD, UNWATCH and the Exec of write
// are refused, and fail the call. Commands of the transaction that only fail when they
// are executed, because a key has another type, do not undo the others: see ErrPartial.
type Effect func(read redis.Cmdable, write redis.Pipeliner) error

// Errors of [Store.Atomic].
var (
	// ErrConflict: in every try, a watched key changed between the reading and the write. Nothing
	// was done; the claim is still held.
	ErrConflict = errors.New("redisadapter: the watched keys kept changing")
	// ErrPartial: the key is recorded as done, and a command of its effect has failed as it
	// was executed. Redis does not undo the others. This is a bug of the effect: a command did not
	// fit the type of its key, or had an argument that is out of range.
	ErrPartial = errors.New("redisadapter: the key is done, and a command of its effect failed")
)

// Atomic completes a claim together with an effect that lives in the same Redis, in one MULTI:
// either both are done, or neither. So the effect is done exactly once within the window, even when
// a process crashes or an owner comes late, and a failover that forgets the record forgets the
// effect with it.
//
// done is what [dedup.Claim.Complete] would be given: a claim that d has acquired in this
// Store, and a result, if any; done.Err must be nil. The watch names the keys that the
// effect reads and relies upon. When one of them changes before the effect is written,
// the effect is called again with what they hold then, up to 16 times in all. On a Cluster
// every key of the effect, watched or written, must be in the slot of the claim: give it
// the tag that [Store.HashTag] returns.
//
// nil means that both are done, now or by an earlier call with this claim whose answer was lost.
// [dedup.ErrLeaseLost] means that the claim was not ours any more, and nothing was done: somebody
// else does the effect. An error of effect is returned as it is, and nothing was done. With
// [dedup.ErrNoResult] both are done, and with [ErrPartial] both except for a command that failed.
// With any other error for which [dedup.OutcomeUnknown] is false, such as [ErrConflict] or
// [driver.ErrStoreFull], nothing was done, and the claim is still held: call Atomic again, or
// release it. When OutcomeUnknown is true, both may have been done: do not acknowledge. Calling
// Atomic again with the same claim is harmless, and so is a redelivery.
//
// (The Observer of d gets an effect's error as a StoreError, because the error returns through the
// store.)
//
// A claim that runs although it was not won (Observe mode, FailOpen) has its effect done
// in a MULTI without a record, each time.
//
// It takes three round trips (WATCH, read, EXEC), on a connection of its own, and one for the first
// call of a Store, which finds out whether the user may do that. When ctx ends it stops only
// between round trips, so it may last one ReadTimeout of the client longer: effect never runs after
// Atomic has returned. A bad argument is an [*driver.InputError] before any of that.
func (s *Store) Atomic(ctx context.Context, d *dedup.Deduper, done dedup.Completion, effect Effect,
	watch ...string) error {
	if err := checkAtomic(done, effect, watch); err != nil {
		return err
	}
	if s.opts.Layout != Full {
		return input("Options.Layout",
			"is "+s.opts.Layout.String()+"; Atomic needs a record per key: Full")
	}
	tx := &transaction{store: s, effect: effect, watch: watch}
	if done.Claim.Outcome == driver.Acquired && done.Claim.Observed != driver.Acquired {
		return tx.unrecorded(ctx, s.client())
	}
	done.With = tx
	errs := d.CompleteBatch(ctx, []dedup.Completion{done})
	switch {
	case tx.final != nil:
		return tx.final
	case tx.done && tx.partial != nil:
		return tx.partial
	case errs != nil:
		return errs[0]
	case tx.lost: // in Observe mode, where a lost lease stops nobody
		return tx.unrecorded(ctx, s.client())
	case tx.asked && !tx.done: // Observe mode forgives what was not recorded
		return fmt.Errorf("%w: %w", dedup.ErrUnknown, tx.unknown)
	case !tx.asked && ctx.Err() != nil: // and what was not sent
		return fmt.Errorf("%w: redisadapter: atomic: %w", dedup.ErrUnknown, wire.Cause(ctx))
	}
	return nil
}

// DoAtomic claims a key and runs its effect with [Store.Atomic]: once within the window.
// It reports what the claim found: Acquired when this call has run the effect. The error
// is nil when the key is done, now or earlier, and otherwise that of the claim (see
// [dedup.Claim.Err]) or of Atomic. Where nothing was done the claim is released, or, when
// [dedup.IsPermanent] is true for what effect returned, failed for good. So a message may
// be acknowledged under the same condition as after [dedup.Do]: when [dedup.CanAck] is true of
// the error.
func (s *Store) DoAtomic(ctx context.Context, d *dedup.Deduper, req dedup.Request, effect Effect,
	watch ...string) (driver.Outcome, error) {
	claims, err := d.ClaimBatch(ctx, []dedup.Request{req})
	if err != nil {
		return driver.Unknown, err
	}
	c := claims[0]
	if c.Outcome != driver.Acquired {
		return c.Outcome, c.Err()
	}
	returned := false
	defer func() {
		if !returned { // effect panicked, or called runtime.Goexit
			_ = c.Release(context.WithoutCancel(ctx))
		}
	}()
	err = s.Atomic(ctx, d, dedup.Completion{Claim: c}, effect, watch...)
	returned = true
	if err == nil || dedup.OutcomeUnknown(err) || errors.Is(err, dedup.ErrLeaseLost) ||
		errors.Is(err, ErrPartial) {
		return driver.Acquired, err
	}
	given := giveUp(context.WithoutCancel(ctx), c, err)
	if !dedup.IsPermanent(err) && errors.Is(err, dedup.ErrNoResult) {
		err = &foreignError{err}
	}
	return driver.Acquired, errors.Join(err, given)
}

// foreignError is an effect's error that says dedup.ErrNoResult about another key. This key is not
// done, and must not look as if it were.
type foreignError struct{ err error }

func (e *foreignError) Error() string { return e.err.Error() }
func (e *foreignError) Is(target error) bool {
	return target != dedup.ErrNoResult && errors.Is(e.err, target)
}
func (e *foreignError) As(target any) bool { return errors.As(e.err, target) }

// giveUp ends a claim whose effect was not done.
func giveUp(ctx context.Context, c *dedup.Claim, err error) error {
	if dedup.IsPermanent(err) {
		return c.Fail(ctx, err)
	}
	return c.Release(ctx)
}

// HashTag returns the hash tag of a key's record, without its braces: on a Cluster a key
// of yours shares the record's slot, as [Store.Atomic] needs it, when its name has the
// same tag:
//
//	id, err := driver.NewID("payments", "", orderID)
//	cart := "cart:{" + store.HashTag(id) + "}"
//
// Outside a Cluster the names of keys do not matter.
func (s *Store) HashTag(id driver.ID) string {
	_, tag, _ := strings.Cut(s.engine.Key(id), "{")
	tag, _, _ = strings.Cut(tag, "}")
	return tag
}

func checkAtomic(done dedup.Completion, effect Effect, watch []string) error {
	switch {
	case done.Claim == nil:
		return input("Completion.Claim", "is nil")
	case done.Err != nil:
		return input("Completion.Err", "is set; Atomic completes, use Fail or Release")
	case done.With != nil:
		return input("Completion.With", "is set; it is for Atomic to set")
	case effect == nil:
		return input("Effect", "is nil")
	}
	for _, key := range watch {
		if key == "" {
			return input("Watch", "has an empty key")
		}
	}
	return nil
}
