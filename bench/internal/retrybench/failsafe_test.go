package retrybench

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/retry"
)

// The breaker that the documentation of retry names fits without an adapter. It opens on an outage,
// lets a probe through when its delay is over, and opens again while the site is down. When the
// site is back it closes, and then every request is served.
func TestFailsafeBreaker(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		outage := Outage{10 * time.Second, 40 * time.Second}
		site := &Site{Capacity: 1000, Queue: 100, Outage: outage, Network: 10 * time.Millisecond}
		site.Open()
		start := time.Now()
		var states []circuitbreaker.State
		var at []time.Duration
		b := circuitbreaker.NewBuilder[any]().WithFailureThreshold(5).WithDelay(
			5 * time.Second).WithSuccessThreshold(2).
			OnStateChanged(func(e circuitbreaker.StateChangedEvent) {
				states, at = append(states, e.NewState), append(at, time.Since(start))
			}).Build()
		var _ retry.Breaker = b
		transport, err := retry.NewTransport(site,
			retry.TransportConfig{Breaker: b, Policy: retry.Policy{Attempts: 1}})
		require.NoError(t, err)
		refused, served := 0, 0 // while the site is down; after the breaker has closed again
		after := 0
		for time.Since(start) < time.Minute {
			now := time.Since(start)
			open := ask(t.Context(), transport)
			switch {
			case now >= outage.From+time.Second && now < outage.To &&
				errors.Is(open, retry.ErrOpen):
				refused++
			case now >= outage.To+6*time.Second:
				if after++; open == nil {
					served++
				}
			}
			time.Sleep(90 * time.Millisecond)
		}
		// The breaker sends one probe every five seconds. It opens after the fifth failure, and is
		// half-open five more times.
		assert.InDelta(t, 10.5, Sum(site.load, outage.From, outage.To), 1.5, "reached a site down")
		assert.GreaterOrEqual(t, refused, 250)
		assert.GreaterOrEqual(t, after, 100)
		assert.Equal(t, after, served)
		const open, half, closed = circuitbreaker.OpenState, circuitbreaker.HalfOpenState,
			circuitbreaker.ClosedState
		require.Equal(t, []circuitbreaker.State{open, half, open, half, open, half, open, half,
			open, half, open, half, closed}, states)
		assert.WithinRange(t, start.Add(at[0]), start.Add(outage.From),
			start.Add(outage.From+time.Second), "opened")
		assert.WithinRange(t, start.Add(at[len(at)-1]), start.Add(outage.To),
			start.Add(outage.To+6*time.Second), "closed")
	})
}

// After the caller has canceled a probe, failsafe-go's breaker can probe again. It has no
// ReleasePermit, so the canceled probe counts as a failure.
func TestFailsafeBreakerGetsItsPermitBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := &Site{Capacity: 1000, Queue: 100, Network: time.Minute}
		site.Open()
		b := circuitbreaker.NewBuilder[any]().WithDelay(time.Second).Build()
		transport, err := retry.NewTransport(site,
			retry.TransportConfig{Breaker: b, Policy: retry.Policy{Attempts: 1}})
		require.NoError(t, err)
		b.HalfOpen()
		ctx, gone := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, gone)
		require.ErrorIs(t, ask(ctx, transport), context.Canceled)
		require.Equal(t, circuitbreaker.OpenState, b.State())
		time.Sleep(time.Second)
		require.NoError(t, ask(t.Context(), transport))
		assert.Equal(t, circuitbreaker.ClosedState, b.State())
	})
}

func ask(ctx context.Context, transport http.RoundTripper) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://site.test/", http.NoBody)
	if err != nil {
		return err
	}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	_ = resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errors.New(resp.Status)
	}
	return nil
}
