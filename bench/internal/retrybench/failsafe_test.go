package retrybench

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/failsafe-go/failsafe-go/circuitbreaker"

	"github.com/onceward/onceward/retry"
)

// The breaker that the documentation of retry names fits as it is: it opens on an outage, lets a
// probe through when its delay is over, opens again while the site is down and closes when it is
// back; then every request is served.
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
		if err != nil {
			t.Fatal(err)
		}
		refused, served := 0, 0 // while the site is down; once it is back and the breaker closed
		after := 0
		for time.Since(start) < time.Minute {
			now := time.Since(start)
			open := ask(t, transport)
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
		// One probe each five seconds: it opens after the fifth failure, and half opens five more
		// times.
		if n := Sum(site.load, outage.From, outage.To); n < 9 || n > 12 {
			t.Errorf("%d requests reached a site that was down", n)
		}
		if refused < 250 || after < 100 || served != after {
			t.Errorf("%d were refused meanwhile; %d of %d were served after it", refused,
				served, after)
		}
		const open, half, closed = circuitbreaker.OpenState, circuitbreaker.HalfOpenState,
			circuitbreaker.ClosedState
		want := []circuitbreaker.State{open, half, open, half, open, half, open, half, open,
			half, open, half, closed}
		if !slices.Equal(states, want) {
			t.Fatalf("went through %v, want %v", states, want)
		}
		if first, last := at[0], at[len(at)-1]; first < outage.From ||
			first > outage.From+time.Second || last < outage.To || last > outage.To+6*time.Second {
			t.Errorf("opened at %v, closed at %v", first, last)
		}
	})
}

// A probe that its caller has cancelled leaves failsafe-go's breaker able to probe again: it has no
// ReleasePermit, so the cancelled one counts as a failure.
func TestFailsafeBreakerGetsItsPermitBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		site := &Site{Capacity: 1000, Queue: 100, Network: time.Minute}
		site.Open()
		b := circuitbreaker.NewBuilder[any]().WithDelay(time.Second).Build()
		transport, err := retry.NewTransport(site,
			retry.TransportConfig{Breaker: b, Policy: retry.Policy{Attempts: 1}})
		if err != nil {
			t.Fatal(err)
		}
		b.HalfOpen()
		ctx, gone := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, gone)
		if err := askUnder(ctx, transport); !errors.Is(err, context.Canceled) || !b.IsOpen() {
			t.Fatalf("%v; the breaker is %v", err, b.State())
		}
		time.Sleep(time.Second)
		if err := ask(t, transport); err != nil || !b.IsClosed() {
			t.Errorf("%v; the breaker is %v", err, b.State())
		}
	})
}

func ask(t *testing.T, transport http.RoundTripper) error {
	t.Helper()
	return askUnder(t.Context(), transport)
}

func askUnder(ctx context.Context, transport http.RoundTripper) error {
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
