package deduptest

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// broken is a right store with one method bent.
type broken struct {
	dedup.Store
	claim  func(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer
	renew  func(ctx context.Context, renewals []driver.Renewal) []driver.Answer
	finish func(ctx context.Context, changes []driver.Finish) []driver.Answer
	lookup func(ctx context.Context, ids []driver.ID) []driver.Answer
	forget func(ctx context.Context, ids []driver.ID, hold time.Duration) []error
	told   func(ctx context.Context) (uint64, error)
	window time.Duration // that it says all keys have
	list   func(ctx context.Context, cursor string, limit int) ([]driver.UncertainRecord, string,
		error)
	ask func(ctx context.Context, req driver.ClaimRequest) driver.Answer
}

func (b *broken) Uncertain(ctx context.Context, cursor string,
	limit int) ([]driver.UncertainRecord, string, error) {
	if b.list != nil {
		return b.list(ctx, cursor, limit)
	}
	return b.Store.(driver.Resolvable).Uncertain(ctx, cursor, limit)
}

func (b *broken) ClaimUncertain(ctx context.Context, req driver.ClaimRequest) driver.Answer {
	if b.ask != nil {
		return b.ask(ctx, req)
	}
	return b.Store.(driver.Resolvable).ClaimUncertain(ctx, req)
}

func (b *broken) Limits() driver.Limits { return driver.Limits{Window: b.window} }

func (b *broken) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	if b.claim != nil {
		return b.claim(ctx, reqs)
	}
	return b.Store.Claim(ctx, reqs)
}

func (b *broken) Renew(ctx context.Context, renewals []driver.Renewal) []driver.Answer {
	if b.renew != nil {
		return b.renew(ctx, renewals)
	}
	return b.Store.Renew(ctx, renewals)
}

func (b *broken) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	if b.finish != nil {
		return b.finish(ctx, changes)
	}
	return b.Store.Finish(ctx, changes)
}

func (b *broken) Lookup(ctx context.Context, ids []driver.ID) []driver.Answer {
	if b.lookup != nil {
		return b.lookup(ctx, ids)
	}
	return b.Store.Lookup(ctx, ids)
}

func (b *broken) Forget(ctx context.Context, ids []driver.ID, hold time.Duration) []error {
	if b.forget != nil {
		return b.forget(ctx, ids, hold)
	}
	return b.Store.Forget(ctx, ids, hold)
}

func (b *broken) Forgets(ctx context.Context) (uint64, error) {
	if b.told != nil {
		return b.told(ctx)
	}
	return b.Store.(driver.ForgetCounter).Forgets(ctx)
}

// state returns the record of a key.
func (b *broken) state(ctx context.Context, id driver.ID) dedup.Record {
	return b.Store.Lookup(ctx, []driver.ID{id})[0].Record
}

// owners remembers the last owner of each key.
type owners struct {
	mu sync.Mutex
	by map[driver.ID]driver.Token
}

func (o *owners) note(reqs []driver.ClaimRequest, answers []driver.Answer) []driver.Answer {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.by == nil {
		o.by = map[driver.ID]driver.Token{}
	}
	for i, a := range answers {
		if a.Outcome == dedup.Acquired {
			o.by[reqs[i].ID] = reqs[i].Token
		}
	}
	return answers
}

func (o *owners) of(id driver.ID) (driver.Token, bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	token, ok := o.by[id]
	return token, ok
}

// mutant is one bug, and the properties that must notice it. Others may, too.
type mutant struct {
	name string
	bend func(b *broken)
	red  []string
}

// Every bug must fail the properties that it names. Without this test, a check that compares
// nothing would pass for years.
func TestBrokenStoresFail(t *testing.T) {
	all := slices.Concat(claimMutants, finishMutants, recordMutants, batchMutants, dangerMutants,
		forgetsMutants, unusedMutants, generationMutants, firstMutants, windowMutants,
		resolvableMutants)
	for _, m := range all {
		t.Run(m.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				said := recordSuite(t, Harness{New: func(testing.TB) dedup.Store {
					b := &broken{Store: dedup.Memory(1 << 16)}
					m.bend(b)
					return b
				}}, judges(m.red)...)
				for _, name := range m.red {
					assert.NotEmpty(t, said[name], "%s did not notice", name)
				}
				t.Logf("red: %s", strings.Join(slices.Sorted(maps.Keys(said)), " "))
			})
		})
	}
}

// Every property must notice at least one bug. One that notices none proves nothing.
func TestEveryPropertyIsNeeded(t *testing.T) {
	noticed := map[string]bool{}
	for _, m := range slices.Concat(claimMutants, finishMutants, recordMutants, batchMutants,
		dangerMutants, forgetsMutants, unusedMutants, generationMutants, firstMutants,
		windowMutants, resolvableMutants) {
		for _, name := range m.red {
			noticed[name] = true
		}
	}
	for _, p := range suite(Harness{}) {
		assert.True(t, noticed[p.name], "%s is required by no broken store", p.name)
		delete(noticed, p.name)
	}
	for name := range noticed {
		assert.True(t, strings.HasPrefix(name, "unreadable/"), "%s is no property", name)
	}
}
