package retry_test

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/retry"
)

// breaker opens after limit failures in a row, lets one request through after delay, and closes
// when that succeeds.
type breaker struct {
	mu        sync.Mutex
	limit     int
	delay     time.Duration
	failures  int // in a row
	permits   int // not returned yet
	successes int
	opened    time.Time // zero: closed
	probing   bool
}

func (b *breaker) TryAcquirePermit() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.opened.IsZero() {
		if b.probing || time.Since(b.opened) < b.delay {
			return false
		}
		b.probing = true
	}
	b.permits++
	return true
}

func (b *breaker) RecordSuccess() { b.record(true) }
func (b *breaker) RecordFailure() { b.record(false) }

func (b *breaker) record(ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.permits--
	b.probing = false
	if ok {
		b.failures, b.opened = 0, time.Time{}
		b.successes++
		return
	}
	if b.failures++; b.failures >= b.limit {
		b.opened = time.Now()
	}
}

// releasing is a breaker that can take a permit back without a success or a failure.
type releasing struct{ *breaker }

func (r releasing) ReleasePermit() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.permits--
	r.probing = false
}

func TestBreakerOpensAndRecovers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &breaker{limit: 5, delay: 10 * time.Second}
		up := time.Now().Add(60 * time.Second)
		base := &script{steps: []step{func(req *http.Request) (*http.Response, error) {
			if time.Now().Before(up) {
				return answer(503, "down")(req)
			}
			return answer(200, "up")(req)
		}}}
		tr := transport(t, base, retry.TransportConfig{Breaker: b})
		refused, served := 0, time.Duration(0)
		start := time.Now()
		for range 100 {
			resp, err := tr.RoundTrip(request(t, "GET", ""))
			switch {
			case errors.Is(err, retry.ErrOpen):
				gaveUp(t, err, retry.BreakerOpen)
				refused++
			case text(t, resp, err) == "up" && served == 0:
				served = time.Since(start)
			}
			time.Sleep(time.Second)
		}
		down := 0
		for _, s := range base.requests() {
			if s.at.Before(up) {
				down++
			}
		}
		// Five failures open it; then one probe each ten seconds of the minute.
		assert.GreaterOrEqual(t, down, 5, "requests reached a server that was down")
		assert.LessOrEqual(t, down, 11)
		assert.GreaterOrEqual(t, refused, 40)
		assert.GreaterOrEqual(t, served, 60*time.Second)
		assert.LessOrEqual(t, served, 72*time.Second)
		assert.GreaterOrEqual(t, b.successes, 25)
		assert.Equal(t, 0, b.permits)
	})
}

func TestWhatABreakerIsTold(t *testing.T) {
	for _, row := range []struct {
		name     string
		do       step
		failures int
	}{
		{"200", answer(200, ""), 0}, {"404", answer(404, ""), 0}, {"429", answer(429, ""), 0},
		{"500", answer(500, ""), 1}, {"501", answer(501, ""), 1}, {"network", broken, 1},
		{"timeout", slow(time.Hour, answer(200, "")), 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := &breaker{limit: 100}
			cfg := retry.TransportConfig{Breaker: b}
			cfg.Policy.Attempts, cfg.Policy.AttemptTimeout = 1, time.Second
			if resp, err := transport(t, &script{steps: []step{row.do}},
				cfg).RoundTrip(request(t, "GET", "")); err == nil {
				text(t, resp, nil)
			}
			assert.Equal(t, row.failures, b.failures, row.name)
			assert.Equal(t, 0, b.permits, row.name)
			assert.Equal(t, 1, b.successes+b.failures, row.name)
		})
	}
}

// When the probe of a half-open breaker is canceled, its permit must be returned.
func TestCancelledProbe(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		plain := &breaker{limit: 1}
		able := &breaker{limit: 1}
		for name, b := range map[string]retry.Breaker{"plain": plain, "able": releasing{able}} {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(time.Second, cancel)
			cfg := retry.TransportConfig{Breaker: b}
			err := refused(t, transport(t, &script{steps: []step{slow(time.Hour, answer(200, ""))}},
				cfg), request(t, "GET", "").WithContext(ctx))
			assert.ErrorIs(t, err, context.Canceled, name)
		}
		late := &breaker{limit: 9}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := refused(t, transport(t, &script{steps: []step{slow(time.Hour, broken)}},
			retry.TransportConfig{
				Breaker: releasing{late}, Policy: retry.Policy{Attempts: 1},
			}), request(t, "GET", "").WithContext(ctx))
		assert.ErrorIs(t, err, context.DeadlineExceeded,
			"a deadline that passed is the service's failure")
		assert.Equal(t, 1, late.failures)
		assert.Equal(t, 0, plain.permits)
		assert.Equal(t, 1, plain.failures)
		assert.Equal(t, 0, able.permits)
		assert.Equal(t, 0, able.failures)
		assert.Equal(t, 0, able.successes)
	})
}

// A request that is not sent closes its body and deposits nothing.
func TestRefusedRequest(t *testing.T) {
	b := &breaker{limit: 1, delay: time.Hour, opened: time.Now()}
	budget, err := retry.NewBudget(retry.BudgetConfig{})
	require.NoError(t, err)
	cfg := retry.TransportConfig{Policy: retry.Policy{Budget: budget}, Breaker: b}
	body := &closing{}
	req := request(t, "POST", "")
	req.Body = body
	base := &script{steps: []step{broken}}
	err = refused(t, transport(t, base, cfg), req)
	assert.Equal(t, 0, gaveUp(t, err, retry.BreakerOpen).Attempts)
	assert.True(t, body.closed)
	assert.Equal(t, retry.DefaultFloor, budget.Tokens())
	assert.Empty(t, base.requests())
}
