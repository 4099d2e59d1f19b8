package dedup_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/onceward/onceward/dedup"
)

func claimBatch(t *testing.T, d *dedup.Deduper, reqs ...dedup.Request) []*dedup.Claim {
	t.Helper()
	claims, err := d.ClaimBatch(t.Context(), reqs)
	if err != nil || len(claims) != len(reqs) {
		t.Fatalf("%d claims for %d requests, %v", len(claims), len(reqs), err)
	}
	for i, c := range claims {
		if c.Key != reqs[i].Key {
			t.Fatalf("claim %d is of %q, want %q", i, c.Key, reqs[i].Key)
		}
	}
	return claims
}

func keyed(key string, payload ...string) dedup.Request {
	r := dedup.Request{Key: key}
	if len(payload) > 0 {
		r.Fingerprint = dedup.FingerprintOf([]byte(payload[0]))
	}
	return r
}

// One batch with everything in it: each item gets its own answer, in order, and one bad
// item fails nobody.
func TestClaimBatchAnswersPerItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d, other := newDeduper(t, store, nil), newDeduper(t, store, nil)
		if _, err := d.Mark(t.Context(), "done"); err != nil {
			t.Fatal(err)
		}
		if err := acquire(t, d, "failed").Fail(t.Context(), errNet); err != nil {
			t.Fatal(err)
		}
		acquire(t, other, "elsewhere")
		acquire(t, other, "bound", dedup.WithFingerprint([]byte("a")))
		if err := acquire(t, other, "released").Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		store.forgetCalls()
		claims := claimBatch(t, d,
			keyed("done"), keyed(""), keyed("fresh"), keyed("elsewhere"), keyed(strings.Repeat("x", 256)),
			keyed("bound", "b"), keyed("released"), keyed("failed"), dedup.Request{Key: "label", Label: "\n"})
		for i, want := range []dedup.Outcome{
			dedup.Duplicate, dedup.Unknown, dedup.Acquired, dedup.InFlight, dedup.Unknown,
			dedup.Mismatch, dedup.Acquired, dedup.Duplicate, dedup.Unknown,
		} {
			wantOutcome(t, claims[i], want)
		}
		wantInput(t, claims[1].Err(), "Key")
		wantInput(t, claims[4].Err(), "Key")
		wantInput(t, claims[8].Err(), "Label")
		var failed *dedup.FailedError
		if !errors.As(claims[7].Err(), &failed) || claims[0].Err() != nil || claims[6].Attempt != 2 {
			t.Errorf("%v, %v, attempt %d", claims[7].Err(), claims[0].Err(), claims[6].Attempt)
		}
		if n := store.count(); n != 1 {
			t.Errorf("%d calls to the store", n)
		}
	})
}

func TestEmptyBatchesAskNothing(t *testing.T) {
	store := hook()
	d := newDeduper(t, store, nil)
	claimBatch(t, d)
	if errs := d.CompleteBatch(t.Context(), nil); errs != nil {
		t.Errorf("%v", errs)
	}
	if claims := claimBatch(t, d, keyed("")); !errors.As(claims[0].Err(), new(*dedup.InputError)) {
		t.Errorf("%v", claims[0].Err())
	}
	if n := store.count(); n != 0 {
		t.Errorf("%d calls to the store", n)
	}
}

// A duplicate inside a batch shares the fate of the first: two runs in one poll are as
// bad as two runs.
func TestRepetitionInABatchIsAnAliasOfTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, dedup.Memory(10), nil)
		if _, err := d.Mark(t.Context(), "done"); err != nil {
			t.Fatal(err)
		}
		claims := claimBatch(t, d, keyed("a", "1"), keyed("done"), keyed("a", "1"), keyed("a", "2"), keyed("done"), keyed("a"),
			dedup.Request{Key: "a", Scope: "other"})
		for i, row := range []struct {
			want  dedup.Outcome
			first *dedup.Claim
		}{
			{dedup.Acquired, nil}, {dedup.Duplicate, nil}, {dedup.InFlight, claims[0]}, {dedup.Mismatch, nil},
			{dedup.Duplicate, claims[1]}, {dedup.InFlight, claims[0]}, {dedup.Acquired, nil},
		} {
			wantOutcome(t, claims[i], row.want)
			if claims[i].Alias != row.first {
				t.Errorf("item %d is an alias of %v", i, claims[i].Alias)
			}
		}
		if rec := claims[2].Record; rec.State != dedup.StateInProgress || rec.Remaining != lease || rec.Fence != 0 {
			t.Errorf("an alias of a fresh claim holds %+v", rec)
		}
		wantInput(t, claims[2].Complete(t.Context(), nil), "Claim")
	})
}

// The first may be the odd one out. The answer to it says nothing about the other.
func TestAliasOfAMismatchThatAgreesWithTheRecord(t *testing.T) {
	bound := dedup.WithFingerprint([]byte("1"))
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d, other := newDeduper(t, store, nil), newDeduper(t, store, nil)
		markWithKey(t, d, "done", bound)
		acquire(t, other, "held", bound)
		if err := acquire(t, other, "free", bound).Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		store.forgetCalls()
		claims := claimBatch(t, d, keyed("done", "2"), keyed("done", "1"), keyed("held", "2"), keyed("held", "1"),
			keyed("free", "2"), keyed("free", "1"), keyed("free", "1"))
		for i, want := range []dedup.Outcome{
			dedup.Mismatch, dedup.Duplicate, dedup.Mismatch, dedup.InFlight,
			dedup.Mismatch, dedup.Acquired, dedup.InFlight,
		} {
			wantOutcome(t, claims[i], want)
		}
		if claims[5].Alias != nil || claims[5].Attempt != 2 {
			t.Errorf("%+v", claims[5])
		}
	})
}

func markWithKey(t *testing.T, d *dedup.Deduper, key string, opts ...dedup.Option) {
	t.Helper()
	if _, err := d.Mark(t.Context(), key, opts...); err != nil {
		t.Fatal(err)
	}
}

func TestAliasOfAnItemThatCouldNotBeLearnt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		store.setBefore(down)
		claims := claimBatch(t, d, keyed("a"), keyed("a"))
		for _, c := range claims {
			wantOutcome(t, c, dedup.Unknown)
			wantErr(t, c.Err(), errNet)
		}
		if n := store.count("Claim"); n != 4 {
			t.Errorf("asked %d times", n)
		}
	})
}

// One item without an answer does not send its neighbors again.
func TestClaimBatchAsksAgainForTheRestOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id, err := dedup.NewID("test", "", "b")
		if err != nil {
			t.Fatal(err)
		}
		store := hook()
		d := newDeduper(t, &partly{hooked: store, lost: id}, nil)
		for _, c := range claimBatch(t, d, keyed("a"), keyed("b"), keyed("c")) {
			wantOutcome(t, c, dedup.Acquired)
		}
		calls := store.of("Claim")
		if len(calls) != 2 || calls[0].items != 3 || calls[1].items != 1 {
			t.Errorf("%+v", calls)
		}
	})
}

func TestClaimBatchUsesTheCacheItemByItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, seen := hook(), &journal{}
		d := newDeduper(t, store, func(c *dedup.Config) { c.CacheBytes, c.Observer = 64<<10, seen.observer() })
		markWithKey(t, d, "a")
		store.forgetCalls()
		claims := claimBatch(t, d, keyed("a"), keyed("b"), keyed("a"))
		wantOutcome(t, claims[0], dedup.Duplicate)
		wantOutcome(t, claims[1], dedup.Acquired)
		wantOutcome(t, claims[2], dedup.Duplicate)
		if calls := store.of(); len(calls) != 1 || calls[0].items != 1 {
			t.Errorf("%+v", calls)
		}
		told := seen.of("claimed")
		if len(told) != 3 || !told[0].Cached || told[1].Cached || !told[2].Cached {
			t.Errorf("%+v", told)
		}
	})
}

func TestCompleteBatchEndsEveryItemItsOwnWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d, other := newDeduper(t, store, func(c *dedup.Config) { c.ResultLimit = 10 }), newDeduper(t, store, nil)
		claims := claimBatch(t, d, keyed("done"), keyed("failed"), keyed("again"), keyed("large"), keyed("twice"), keyed("done"))
		foreign := acquire(t, other, "foreign")
		store.forgetCalls()
		errs := d.CompleteBatch(t.Context(), []dedup.Completion{
			{Claim: claims[0], Result: []byte("v")},
			{Claim: claims[1], Err: fmt.Errorf("wrapped: %w", dedup.Permanent(errNet))},
			{Claim: claims[2], Err: errNet},
			{Claim: claims[3], Result: make([]byte, 11)},
			{Claim: claims[4]},
			{Claim: claims[4]},
			{Claim: claims[5]},
			{Claim: foreign},
			{},
		})
		for i, want := range []error{nil, nil, nil, dedup.ErrNoResult, nil} {
			if !errors.Is(errs[i], want) {
				t.Errorf("item %d: %v, want %v", i, errs[i], want)
			}
		}
		wantInput(t, errs[5], "Completion")
		for _, err := range errs[6:] {
			wantInput(t, err, "Claim")
		}
		for key, want := range map[string]dedup.State{
			"done": dedup.StateSucceeded, "failed": dedup.StateFailed, "again": dedup.StateReleased,
			"large": dedup.StateSucceeded, "twice": dedup.StateSucceeded, "foreign": dedup.StateInProgress,
		} {
			wantState(t, store, key, want)
		}
		if calls := store.of(); len(calls) != 1 || calls[0].items != 5 {
			t.Errorf("%+v", calls)
		}
		// Ending again what has ended the same way asks nobody.
		if errs := d.CompleteBatch(t.Context(), []dedup.Completion{{Claim: claims[0]}, {Claim: claims[2], Err: errNet}}); errs != nil || store.count() != 1 {
			t.Errorf("%v, %d calls", errs, store.count())
		}
	})
}

// One claim of a batch was taken over: only its item says so.
func TestCompleteBatchTellsWhichLeaseWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d, other := newDeduper(t, store, nil), newDeduper(t, store, nil)
		claims := claimBatch(t, d, keyed("a"), keyed("b"), keyed("c"))
		markWithKey(t, other, "b")
		errs := d.CompleteBatch(t.Context(), []dedup.Completion{{Claim: claims[0]}, {Claim: claims[1]}, {Claim: claims[2], Err: errNet}})
		if len(errs) != 3 || errs[0] != nil || !errors.Is(errs[1], dedup.ErrLeaseLost) || errs[2] != nil {
			t.Errorf("%v", errs)
		}
	})
}

// Half of the batch is lost on the way: only that half is sent again.
func TestCompleteBatchSendsTheRestOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, &halfway{hooked: store}, nil)
		claims := claimBatch(t, d, keyed("a"), keyed("b"), keyed("c"), keyed("d"))
		var done []dedup.Completion
		for _, c := range claims {
			done = append(done, dedup.Completion{Claim: c, Result: []byte(c.Key)})
		}
		if errs := d.CompleteBatch(t.Context(), done); errs != nil {
			t.Fatal(errs)
		}
		var sizes []int
		for _, c := range store.of("Finish") {
			sizes = append(sizes, c.items)
		}
		if fmt.Sprint(sizes) != "[4 2 1]" {
			t.Errorf("batches of %v", sizes)
		}
		for _, c := range claims {
			if rec := wantState(t, store, c.Key, dedup.StateSucceeded); string(rec.Result) != c.Key {
				t.Errorf("%q was completed with %q", c.Key, rec.Result)
			}
		}
	})
}

// halfway loses the answers of every batch from its middle on, until one item is left.
type halfway struct{ *hooked }

func (h *halfway) Finish(ctx context.Context, changes []dedup.Change) []dedup.Answer {
	answers := h.hooked.Finish(ctx, changes)
	if len(answers) == 1 {
		return answers
	}
	for i := (len(answers) + 1) / 2; i < len(answers); i++ {
		answers[i] = lostAnswer(errNet)
	}
	return answers
}
