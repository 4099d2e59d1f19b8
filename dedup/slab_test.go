package dedup_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// reader is a store that leaves one item of its first Claim without an answer, and one of the
// first Finish with a success, as when the caller has gone. It continues to read the request. The
// claim without an answer is given back meanwhile, by a goroutine of its own.
type reader struct {
	dedup.Store
	mu                   sync.Mutex
	claims, sentClaims   []driver.ClaimRequest
	changes, sentChanges []driver.Finish
}

func (r *reader) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	answers := r.Store.Claim(ctx, reqs)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.claims == nil {
		r.claims, r.sentClaims = reqs, slices.Clone(reqs)
		answers[0] = driver.Answer{Err: context.Canceled}
	}
	return answers
}

func (r *reader) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	answers := r.Store.Finish(ctx, changes)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.changes == nil && changes[0].State == driver.StateSucceeded {
		r.changes, r.sentChanges = changes, slices.Clone(changes)
		answers[0] = driver.Answer{Err: context.Canceled}
	}
	return answers
}

// manyKeyed are requests with every field of their messages set.
func manyKeyed(n int, prefix string) []dedup.Request {
	reqs := make([]dedup.Request, n)
	for i := range reqs {
		reqs[i] = keyed(fmt.Sprint(prefix, i), fmt.Sprint(prefix, i))
		reqs[i].Label = fmt.Sprint(prefix, i)
		reqs[i].Origin = driver.Origin{Source: prefix, Offset: int64(i)}
	}
	return reqs
}

func cycle(t *testing.T, d *dedup.Deduper, n int, prefix string) {
	t.Helper()
	var ends []dedup.Completion
	for _, c := range claimBatch(t, d, manyKeyed(n, prefix)...) {
		if c.Outcome == dedup.Acquired {
			ends = append(ends, dedup.Completion{Claim: c, Result: []byte(prefix)})
		}
	}
	d.CompleteBatch(t.Context(), ends)
}

// A store may still read the slices of a call whose items it has not answered. So the next batch
// must not use these slices.
func TestSlicesOfCallsThatWereNotAnsweredAreNotUsedAgain(t *testing.T) {
	store := &reader{Store: dedup.Memory(1000)}
	d := newDeduper(t, store, func(c *dedup.Config) { c.Labels = true })
	for i := range 4 {
		cycle(t, d, 8, fmt.Sprint("batch", i, "-"))
	}
	for i := range store.claims {
		assert.Equal(t, store.sentClaims[i], store.claims[i],
			"request %d is another one after the call", i)
	}
	for i := range store.changes {
		got, want := store.changes[i], store.sentChanges[i]
		assert.Equal(t, want.ID, got.ID, "change %d is another one after the call", i)
		assert.Equal(t, want.Token, got.Token, "change %d is another one after the call", i)
		assert.Equal(t, want.Label, got.Label, "change %d is another one after the call", i)
	}
}

// distant is a reader with a delay of a millisecond. It ends and claims in one exchange, and
// records only these calls.
type distant struct{ *reader }

func (s distant) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	time.Sleep(time.Millisecond)
	return s.Store.Claim(ctx, reqs)
}

func (s distant) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	time.Sleep(time.Millisecond)
	return s.Store.Finish(ctx, changes)
}

func (s distant) FinishClaim(ctx context.Context, changes []driver.Finish,
	reqs []driver.ClaimRequest) (ended, claimed []driver.Answer) {
	time.Sleep(time.Millisecond)
	if len(changes) < 2 || len(reqs) < 2 { // the slices of a single item are not used again
		return s.Store.Finish(ctx, changes), s.Store.Claim(ctx, reqs)
	}
	return s.reader.Finish(ctx, changes), s.reader.Claim(ctx, reqs)
}

// The same is true for the slices that single calls share when many callers call at once.
func TestSlicesOfACrowdThatWereNotAnsweredAreNotUsedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := &reader{Store: dedup.Memory(10_000)}
		d := newDeduper(t, distant{store}, nil)
		var wg sync.WaitGroup
		for caller := range 100 {
			wg.Go(func() {
				for n := range 20 {
					_, _ = dedup.Do(t.Context(), d, fmt.Sprint(caller, " ", n),
						func(context.Context) (int, error) { return n, nil })
				}
			})
		}
		wg.Wait()
		require.Greater(t, len(store.claims), 1)
		require.Greater(t, len(store.changes), 1)
		assert.Equal(t, store.sentClaims, store.claims)
		for i := range store.changes {
			assert.Equal(t, store.sentChanges[i].ID, store.changes[i].ID, "change %d", i)
			assert.Equal(t, store.sentChanges[i].Token, store.changes[i].Token, "change %d", i)
		}
		time.Sleep(time.Hour) // what is given back
	})
}

// noting is a store that records what was claimed and how it was ended.
type noting struct {
	dedup.Store
	asked map[driver.ID]driver.ClaimRequest
	ended map[driver.ID]driver.Finish
}

func (n *noting) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	for i := range reqs {
		n.asked[reqs[i].ID] = reqs[i]
	}
	return n.Store.Claim(ctx, reqs)
}

func (n *noting) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	for i := range changes {
		n.ended[changes[i].ID] = changes[i]
	}
	return n.Store.Finish(ctx, changes)
}

// A claim is ended with the values of its own request, even if many batches have used the same
// slices in between.
func TestClaimsOutliveTheSlicesOfTheirBatch(t *testing.T) {
	store := &noting{Store: dedup.Memory(1000), asked: map[driver.ID]driver.ClaimRequest{},
		ended: map[driver.ID]driver.Finish{}}
	d := newDeduper(t, store, func(c *dedup.Config) { c.Labels = true })
	mixed := manyKeyed(8, "early")
	// one with a key only
	mixed[2], mixed[5] = dedup.Request{Key: "bare"}, dedup.Request{Key: "mixed4"}
	early := claimBatch(t, d, mixed...)
	for i := range 3 {
		cycle(t, d, 8, fmt.Sprint("later", i, "-"))
	}
	var ends []dedup.Completion
	for _, c := range early {
		ends = append(ends, dedup.Completion{Claim: c})
	}
	require.Nil(t, d.CompleteBatch(t.Context(), ends))
	assert.Len(t, store.ended, len(store.asked), "ended keys")
	for id, asked := range store.asked {
		got := store.ended[id]
		assert.Equal(t, asked.Token, got.Token)
		assert.Equal(t, asked.Origin, got.Origin)
		assert.Equal(t, asked.Label, got.Label)
		assert.Equal(t, asked.Fingerprint, got.Fingerprint)
	}
}

// The record of a claim does not change, although the store uses its answers again.
func TestRecordsOutliveTheAnswersOfTheirBatch(t *testing.T) {
	d := newDeduper(t, dedup.Memory(1000), nil)
	cycle(t, d, 8, "done")
	claims := claimBatch(t, d, manyKeyed(8, "done")...)
	for i := range 3 {
		cycle(t, d, 8, fmt.Sprint("later", i, "-"))
	}
	for i, c := range claims {
		want := manyKeyed(8, "done")[i]
		assert.Equal(t, dedup.Duplicate, c.Outcome, "claim %d", i)
		assert.Equal(t, "done", string(c.Record.Result), "claim %d", i)
		assert.Equal(t, want.Origin.Offset, c.Record.Origin.Offset, "claim %d", i)
		assert.Equal(t, want.Fingerprint, c.Record.Fingerprint, "claim %d", i)
	}
}
