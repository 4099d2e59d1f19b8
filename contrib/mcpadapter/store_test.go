package mcpadapter_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/stretchr/testify/assert"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/dedup/driver"
)

// brokenStore is one that cannot be asked, or that cannot record.
type brokenStore struct {
	dedup.Store
	claims, renewals, ends atomic.Bool
}

var errDown = errors.New("connection refused")

func failing(n int) []driver.Answer {
	answers := make([]driver.Answer, n)
	for i := range answers {
		answers[i].Err = errDown
	}
	return answers
}

func (b *brokenStore) Claim(ctx context.Context, reqs []driver.ClaimRequest) []driver.Answer {
	if b.claims.Load() {
		return failing(len(reqs))
	}
	return b.Store.Claim(ctx, reqs)
}

func (b *brokenStore) Renew(ctx context.Context, all []driver.Renewal) []driver.Answer {
	if b.renewals.Load() {
		return failing(len(all))
	}
	return b.Store.Renew(ctx, all)
}

func (b *brokenStore) Finish(ctx context.Context, all []driver.Finish) []driver.Answer {
	if b.ends.Load() {
		return failing(len(all))
	}
	return b.Store.Finish(ctx, all)
}

func impatient(c *dedup.Config) {
	c.LeaseTTL, c.StoreTimeout = 200*time.Millisecond, 20*time.Millisecond
}

// While the store is down no tool runs, even if only the declaration cannot be written.
func TestStoreIsDown(t *testing.T) {
	store := &brokenStore{Store: dedup.Memory(100)}
	s := newService(t, settings{store: store, dedup: impatient})
	client := s.client(t)
	store.claims.Store(true)
	assert.Equal(t, "STORE_UNAVAILABLE", send(t, client, call("k", five)))
	store.claims.Store(false)
	store.renewals.Store(true)
	assert.Equal(t, "STORE_UNAVAILABLE", send(t, client, call("k", five)))
	assert.Zero(t, s.runs.Load())
	store.renewals.Store(false)
	assert.Contains(t, send(t, client, call("k", five)), ran)
}

// A result whose record is not confirmed is not returned: a client that got it would not call
// again, and the next call would run the tool.
func TestRecordIsNotConfirmed(t *testing.T) {
	store := &brokenStore{Store: dedup.Memory(100)}
	s := newService(t, settings{store: store, dedup: impatient,
		handle: func(context.Context, *mcp.CallToolRequest, int64) (*mcp.CallToolResult, error) {
			store.ends.Store(true)
			return nil, nil
		}})
	client := s.client(t)
	assert.Equal(t, "OUTCOME_UNKNOWN", send(t, client, call("k", five)))
	store.ends.Store(false)
	assert.Equal(t, "UNCERTAIN", send(t, client, call("k", five)))
	assert.EqualValues(t, 1, s.runs.Load())
}

// A record that another version may have written is not taken for a result.
func TestUnreadableResult(t *testing.T) {
	resolve := func(context.Context, string, dedup.Record) (dedup.Resolution, error) {
		return dedup.Happened([]byte("a result")), nil
	}
	s := newService(t, settings{dedup: func(c *dedup.Config) { c.Resolve = resolve },
		handle: func(context.Context, *mcp.CallToolRequest, int64) (*mcp.CallToolResult, error) {
			return nil, errLost
		}})
	client := s.client(t)
	assert.Contains(t, send(t, client, call("k", five)), "reset")
	assert.Equal(t, "RESULT_NOT_KEPT", send(t, client, call("k", five)))
	assert.EqualValues(t, 1, s.runs.Load())
}
