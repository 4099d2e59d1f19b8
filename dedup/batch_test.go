package dedup_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

func claimBatch(t *testing.T, d *dedup.Deduper, reqs ...dedup.Request) []*dedup.Claim {
	t.Helper()
	claims, err := d.ClaimBatch(t.Context(), reqs)
	require.NoError(t, err)
	require.Len(t, claims, len(reqs))
	for i, c := range claims {
		require.Equal(t, reqs[i].Key, c.Key, "claim %d", i)
	}
	return claims
}

func keyed(key string, payload ...string) dedup.Request {
	r := dedup.Request{Key: key}
	if len(payload) > 0 {
		r.Fingerprint = driver.FingerprintOf([]byte(payload[0]))
	}
	return r
}

// One batch has everything in it. Each item gets its own answer, in order, and one bad item does
// not fail the others.
func TestClaimBatchAnswersPerItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d, other := newDeduper(t, store, nil), newDeduper(t, store, nil)
		_, err := d.Mark(t.Context(), "done")
		require.NoError(t, err)
		require.NoError(t, acquire(t, d, "failed").Fail(t.Context(), errNet))
		acquire(t, other, "elsewhere")
		acquire(t, other, "bound", dedup.WithFingerprint([]byte("a")))
		require.NoError(t, acquire(t, other, "released").Release(t.Context()))
		store.forgetCalls()
		claims := claimBatch(t, d,
			keyed("done"), keyed(""), keyed("fresh"), keyed("elsewhere"),
			keyed(strings.Repeat("x", 256)),
			keyed("bound", "b"), keyed("released"), keyed("failed"),
			dedup.Request{Key: "label", Label: "\n"})
		for i, want := range []driver.Outcome{
			dedup.Duplicate, dedup.Unknown, dedup.Acquired, dedup.InFlight, dedup.Unknown,
			dedup.Mismatch, dedup.Acquired, dedup.Duplicate, dedup.Unknown,
		} {
			require.Equal(t, want, claims[i].Outcome)
		}
		wantInput(t, claims[1].Err(), "Key")
		wantInput(t, claims[4].Err(), "Key")
		wantInput(t, claims[8].Err(), "Label")
		var failed *dedup.FailedError
		assert.ErrorAs(t, claims[7].Err(), &failed)
		require.NoError(t, claims[0].Err())
		assert.Equal(t, 2, claims[6].Attempt)
		assert.Equal(t, 1, store.count(), "calls to the store")
	})
}

func TestEmptyBatchesAskNothing(t *testing.T) {
	store := hook()
	d := newDeduper(t, store, nil)
	claimBatch(t, d)
	assert.Nil(t, d.CompleteBatch(t.Context(), nil))
	assert.ErrorAs(t, claimBatch(t, d, keyed(""))[0].Err(), new(*dedup.InputError))
	assert.Equal(t, 0, store.count(), "calls to the store")
}

// A duplicate inside a batch is an alias of the first. Two runs in one poll are as bad as any two
// runs.
func TestRepetitionInABatchIsAnAliasOfTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newDeduper(t, dedup.Memory(10), nil)
		_, err := d.Mark(t.Context(), "done")
		require.NoError(t, err)
		claims := claimBatch(t, d, keyed("a", "1"), keyed("done"), keyed("a", "1"), keyed("a", "2"),
			keyed("done"), keyed("a"), dedup.Request{Key: "a", Scope: "other"})
		for i, row := range []struct {
			want  driver.Outcome
			first *dedup.Claim
		}{
			{dedup.Acquired, nil}, {dedup.Duplicate, nil}, {dedup.InFlight, claims[0]},
			{dedup.Mismatch, nil},
			{dedup.Duplicate, claims[1]}, {dedup.InFlight, claims[0]}, {dedup.Acquired, nil},
		} {
			require.Equal(t, row.want, claims[i].Outcome)
			assert.Same(t, row.first, claims[i].Alias, "item %d is an alias", i)
		}
		rec := claims[2].Record
		assert.Equal(t, driver.StateInProgress, rec.State, "an alias of a fresh claim")
		assert.Equal(t, lease, rec.Remaining)
		assert.Zero(t, rec.Fence)
		wantInput(t, claims[2].Complete(t.Context(), nil), "Claim")
	})
}

// The first request of a key may be the one with the wrong payload. Its answer says nothing about
// the other requests of that key.
func TestAliasOfAMismatchThatAgreesWithTheRecord(t *testing.T) {
	bound := dedup.WithFingerprint([]byte("1"))
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d, other := newDeduper(t, store, nil), newDeduper(t, store, nil)
		markWithKey(t, d, "done", bound)
		acquire(t, other, "held", bound)
		require.NoError(t, acquire(t, other, "free", bound).Release(t.Context()))
		store.forgetCalls()
		claims := claimBatch(t, d, keyed("done", "2"), keyed("done", "1"), keyed("held", "2"),
			keyed("held", "1"), keyed("free", "2"), keyed("free", "1"), keyed("free", "1"))
		for i, want := range []driver.Outcome{
			dedup.Mismatch, dedup.Duplicate, dedup.Mismatch, dedup.InFlight,
			dedup.Mismatch, dedup.Acquired, dedup.InFlight,
		} {
			require.Equal(t, want, claims[i].Outcome)
		}
		assert.Nil(t, claims[5].Alias)
		assert.Equal(t, 2, claims[5].Attempt)
	})
}

func markWithKey(t *testing.T, d *dedup.Deduper, key string, opts ...dedup.Option) {
	t.Helper()
	_, err := d.Mark(t.Context(), key, opts...)
	require.NoError(t, err)
}

func TestAliasOfAnItemThatCouldNotBeLearnt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d := newDeduper(t, store, nil)
		store.setBefore(down)
		claims := claimBatch(t, d, keyed("a"), keyed("a"))
		for _, c := range claims {
			require.Equal(t, dedup.Unknown, c.Outcome)
			require.ErrorIs(t, c.Err(), errNet)
		}
		assert.Equal(t, 4, store.count("Claim"))
	})
}

// One item without an answer does not send its neighbors again.
func TestClaimBatchAsksAgainForTheRestOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id, err := driver.NewID("test", "", "b")
		require.NoError(t, err)
		store := hook()
		d := newDeduper(t, &partly{hooked: store, lost: id}, nil)
		for _, c := range claimBatch(t, d, keyed("a"), keyed("b"), keyed("c")) {
			require.Equal(t, dedup.Acquired, c.Outcome)
		}
		calls := store.of("Claim")
		require.Len(t, calls, 2)
		assert.Equal(t, 3, calls[0].items)
		assert.Equal(t, 1, calls[1].items)
	})
}

func TestClaimBatchUsesTheCacheItemByItem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store, seen := hook(), &journal{}
		d := newDeduper(t, store, func(c *dedup.Config) {
			c.CacheBytes, c.Observer = 64<<10, seen.observer()
		})
		markWithKey(t, d, "a")
		store.forgetCalls()
		claims := claimBatch(t, d, keyed("a"), keyed("b"), keyed("a"))
		require.Equal(t, dedup.Duplicate, claims[0].Outcome)
		require.Equal(t, dedup.Acquired, claims[1].Outcome)
		require.Equal(t, dedup.Duplicate, claims[2].Outcome)
		calls := store.of()
		require.Len(t, calls, 1)
		assert.Equal(t, 1, calls[0].items)
		told := seen.of("claimed")
		require.Len(t, told, 3)
		assert.True(t, told[0].Cached && !told[1].Cached && told[2].Cached, "%+v", told)
	})
}

func TestCompleteBatchEndsEveryItemItsOwnWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d, other := newDeduper(t, store, func(c *dedup.Config) {
			c.ResultLimit = 10
		}), newDeduper(t, store, nil)
		claims := claimBatch(t, d, keyed("done"), keyed("failed"), keyed("again"), keyed("large"),
			keyed("twice"), keyed("done"))
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
			assert.ErrorIs(t, errs[i], want, "item %d", i)
		}
		wantInput(t, errs[5], "Completion")
		for _, err := range errs[6:] {
			wantInput(t, err, "Claim")
		}
		for key, want := range map[string]driver.State{
			"done": driver.StateSucceeded, "failed": driver.StateFailed,
			"again": driver.StateReleased,
			"large": driver.StateSucceeded, "twice": driver.StateSucceeded,
			"foreign": driver.StateInProgress,
		} {
			wantState(t, store, key, want)
		}
		calls := store.of()
		require.Len(t, calls, 1)
		assert.Equal(t, 5, calls[0].items)
		// A second end of the same kind is not sent.
		errs = d.CompleteBatch(t.Context(),
			[]dedup.Completion{{Claim: claims[0]}, {Claim: claims[2], Err: errNet}})
		assert.Nil(t, errs)
		assert.Equal(t, 1, store.count())
	})
}

// Another process has marked one key of a batch. Only the item of that key returns ErrLeaseLost.
func TestCompleteBatchTellsWhichLeaseWasLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := hook()
		d, other := newDeduper(t, store, nil), newDeduper(t, store, nil)
		claims := claimBatch(t, d, keyed("a"), keyed("b"), keyed("c"))
		markWithKey(t, other, "b")
		errs := d.CompleteBatch(t.Context(),
			[]dedup.Completion{{Claim: claims[0]}, {Claim: claims[1]},
				{Claim: claims[2], Err: errNet}})
		require.Len(t, errs, 3)
		require.NoError(t, errs[0])
		assert.ErrorIs(t, errs[1], dedup.ErrLeaseLost)
		assert.NoError(t, errs[2])
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
		require.Nil(t, d.CompleteBatch(t.Context(), done))
		var sizes []int
		for _, c := range store.of("Finish") {
			sizes = append(sizes, c.items)
		}
		assert.Equal(t, "[4 2 1]", fmt.Sprint(sizes))
		for _, c := range claims {
			rec := wantState(t, store, c.Key, driver.StateSucceeded)
			assert.Equal(t, c.Key, string(rec.Result), "the result of %q", c.Key)
		}
	})
}

// halfway loses the answers to the second half of every batch of two or more items.
type halfway struct{ *hooked }

func (h *halfway) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	answers := h.hooked.Finish(ctx, changes)
	if len(answers) == 1 {
		return answers
	}
	for i := (len(answers) + 1) / 2; i < len(answers); i++ {
		answers[i] = lostAnswer(errNet)
	}
	return answers
}
