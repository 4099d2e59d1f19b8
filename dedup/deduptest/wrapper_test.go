package deduptest

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// transparent hides nothing.
type transparent struct{ dedup.Store }

func (w transparent) Limits() driver.Limits { return driver.LimitsOf(w.Store) }

func (w transparent) FinishClaim(ctx context.Context, ends []driver.Finish,
	reqs []driver.ClaimRequest) (ended, claimed []driver.Answer) {
	return w.Store.(driver.FinishClaimer).FinishClaim(ctx, ends, reqs)
}

func (w transparent) Forgets(ctx context.Context) (uint64, error) {
	return w.Store.(driver.ForgetCounter).Forgets(ctx)
}

func (w transparent) Wake(ctx context.Context, ids []driver.ID) error {
	return w.Store.(driver.Waker).Wake(ctx, ids)
}

func (w transparent) Listen(ctx context.Context, id driver.ID, woken func()) (func(), error) {
	return w.Store.(driver.Waker).Listen(ctx, id, woken)
}

func (w transparent) Recycle(answers []driver.Answer) { w.Store.(driver.Recycler).Recycle(answers) }

// The methods that a wrapper may get wrong.
type (
	unlimited  struct{ transparent }
	apart      struct{ transparent }
	stuck      struct{ transparent }
	wasteful   struct{ transparent }
	silent     struct{ transparent }
	forgetless struct {
		dedup.Store
		driver.Limiter
		driver.FinishClaimer
		driver.Waker
		driver.Recycler
	}
)

func (unlimited) Limits() driver.Limits { return driver.Limits{} }

func (w apart) FinishClaim(ctx context.Context, ends []driver.Finish,
	reqs []driver.ClaimRequest) (ended, claimed []driver.Answer) {
	return w.Finish(ctx, ends), w.Claim(ctx, reqs)
}

func (stuck) Forgets(context.Context) (uint64, error) { return 7, nil }

func (wasteful) Recycle([]driver.Answer) {}

func (silent) Wake(context.Context, []driver.ID) error { return nil }

func TestWrapper(t *testing.T) {
	Wrapper(t, func(s dedup.Store) dedup.Store { return transparent{s} })
	for name, tt := range map[string]struct {
		wrap func(dedup.Store) dedup.Store
		says string
	}{
		"bare":       {func(s dedup.Store) dedup.Store { return struct{ dedup.Store }{s} }, "Limiter"},
		"limits":     {func(s dedup.Store) dedup.Store { return unlimited{transparent{s}} }, "Limiter"},
		"two calls":  {func(s dedup.Store) dedup.Store { return apart{transparent{s}} }, "FinishClaimer"},
		"one number": {func(s dedup.Store) dedup.Store { return stuck{transparent{s}} }, "ForgetCounter"},
		"no news":    {func(s dedup.Store) dedup.Store { return silent{transparent{s}} }, "Waker"},
		"garbage":    {func(s dedup.Store) dedup.Store { return wasteful{transparent{s}} }, "Recycler"},
		"no number": {func(s dedup.Store) dedup.Store {
			w := transparent{s}
			return forgetless{s, w, w, w, w}
		}, "ForgetCounter"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &recorder{TB: t}
			Wrapper(r, tt.wrap)
			require.True(t, r.Failed())
			assert.Contains(t, r.messages[0], tt.says)
		})
	}
	r := &recorder{TB: t}
	Wrapper(r, func(s dedup.Store) dedup.Store { return struct{ dedup.Store }{s} })
	assert.Len(t, r.messages, 5, "one for each that is hidden")
}
