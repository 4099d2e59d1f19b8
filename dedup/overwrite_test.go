package dedup_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// TestWhoMayOverwrite: a store may end a claim without a comparison only if a late copy of that end
// cannot write anything untrue.
func TestWhoMayOverwrite(t *testing.T) {
	plain := func(r *dedup.Request) { r.NoResult = true }
	for name, row := range map[string]struct {
		ask     func(*dedup.Request)
		handler func(ctx context.Context) error
		before  func(t *testing.T, d *dedup.Deduper) // what an earlier attempt has done
		want    bool
	}{
		"a handler without results": {ask: plain, want: true},
		"one that may have results": {},
		"one that takes over": {ask: func(r *dedup.Request) {
			r.NoResult, r.TakeOverOlderGeneration = true, true
		}},
		"after MarkIrreversible": {ask: plain, handler: dedup.MarkIrreversible},
		"an earlier attempt's MarkIrreversible": {ask: plain,
			before: func(t *testing.T, d *dedup.Deduper) {
				c, err := d.Claim(t.Context(), "k", plain)
				require.NoError(t, err)
				run, stop := c.KeepAlive(t.Context())
				defer stop()
				require.NoError(t, dedup.MarkIrreversible(run))
				require.NoError(t, c.Release(t.Context()))
			}},
	} {
		t.Run(name, func(t *testing.T) {
			store := &claimsSeen{Store: dedup.Memory(10)}
			d := newDeduper(t, store, func(c *dedup.Config) {
				c.Resolve = func(context.Context, string, dedup.Record) (dedup.Resolution, error) {
					return dedup.DidNotHappen(), nil
				}
			})
			if row.before != nil {
				row.before(t, d)
			}
			store.ends = nil
			ask := row.ask
			if ask == nil {
				ask = func(*dedup.Request) {}
			}
			c, err := d.Claim(t.Context(), "k", ask)
			require.NoError(t, err)
			require.Equal(t, dedup.Acquired, c.Outcome)
			run, stop := c.KeepAlive(t.Context())
			defer stop()
			if row.handler != nil {
				require.NoError(t, row.handler(run))
			}
			require.NoError(t, c.Complete(t.Context(), nil))
			require.Len(t, store.ends, 1)
			assert.Equal(t, row.want, store.ends[0].MayOverwrite)
		})
	}
}

// TestDoWithoutAValueHasNoResult: Do with struct{} ends its claim the cheaper way by itself.
func TestDoWithoutAValueHasNoResult(t *testing.T) {
	store := &claimsSeen{Store: dedup.Memory(10)}
	d := newDeduper(t, store, nil)
	_, err := dedup.Do(t.Context(), d, "nothing",
		func(context.Context) (struct{}, error) { return struct{}{}, nil })
	require.NoError(t, err)
	_, err = dedup.Do(t.Context(), d, "text",
		func(context.Context) (string, error) { return "", nil })
	require.NoError(t, err)
	require.Len(t, store.reqs, 2)
	assert.True(t, store.reqs[0].NoResult && store.ends[0].MayOverwrite)
	assert.False(t, store.reqs[1].NoResult || store.ends[1].MayOverwrite,
		"an empty value is a value")
}

// TestASecondSendMayNotOverwrite: the first send may still be executed, and other owners may have
// the key when the second one is executed.
func TestASecondSendMayNotOverwrite(t *testing.T) {
	for name, end := range map[string]func(*dedup.Deduper, *dedup.Claim) error{
		"alone": func(_ *dedup.Deduper, c *dedup.Claim) error {
			return c.Complete(t.Context(), nil)
		},
		"in a batch": func(d *dedup.Deduper, c *dedup.Claim) error {
			for _, err := range d.CompleteBatch(t.Context(), []dedup.Completion{{Claim: c}}) {
				return err
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			store := &deafOnce{claimsSeen: claimsSeen{Store: dedup.Memory(10)}}
			d := newDeduper(t, store, nil)
			c, err := d.Claim(t.Context(), "k", func(r *dedup.Request) { r.NoResult = true })
			require.NoError(t, err)
			require.NoError(t, end(d, c))
			require.Len(t, store.ends, 2)
			assert.True(t, store.ends[0].MayOverwrite)
			assert.False(t, store.ends[1].MayOverwrite)
		})
	}
}

// deafOnce does not answer the first Finish.
type deafOnce struct{ claimsSeen }

func (s *deafOnce) Finish(ctx context.Context, changes []driver.Finish) []driver.Answer {
	answers := s.claimsSeen.Finish(ctx, changes)
	if len(s.ends) == 1 {
		answers[0] = driver.Answer{Err: errNet}
	}
	return answers
}
