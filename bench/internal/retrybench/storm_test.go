package retrybench

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// With -storm the rows are written to a file, which the suite reads.
var (
	stormFile = flag.String("storm", "", "write the rows of the simulations there")
	rounds    = flag.Int("rounds", 1, "run everything so often")
)

// TestStorm runs the simulations of the figures, and checks what the figures are to show.
func TestStorm(t *testing.T) {
	if testing.Short() {
		t.Skip("seconds of simulation")
	}
	all := make([]Round, *rounds)
	for i := range all {
		all[i] = round(t)
	}
	rows := Rows(all)
	for _, row := range rows {
		if row.Goal == "" {
			continue
		}
		t.Logf("%s: %.4g %s; %s: %.4g (%s)", row.Name, row.Value, row.Unit, row.Against,
			row.AgainstValue, row.Goal)
		assert.True(t, row.OK, "%s: %v %s is not %s", row.Name, row.Value, row.Unit, row.Goal)
	}
	if *stormFile != "" {
		data, err := json.Marshal(rows)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(*stormFile, data, 0o644))
	}
}

func round(t *testing.T) (r Round) {
	t.Helper()
	for _, wait := range Waits {
		r.Comeback = append(r.Comeback, simulate(t, func(ctx context.Context) (Trace, error) {
			return Comeback(ctx, TheHerd, wait)
		}))
	}
	for _, guard := range Guards {
		r.Through = append(r.Through, simulate(t, func(ctx context.Context) (Trace, error) {
			return Through(ctx, TheTraffic, guard)
		}))
	}
	r.Deaf, r.Told = layers(t, 4, false), layers(t, 4, true)
	assert.Equal(t, 81, r.Deaf, "calls when nobody is told")
	return r
}

// simulate runs one simulation in fake time.
func simulate(t *testing.T, run func(context.Context) (Trace, error)) (c Trace) {
	t.Helper()
	begin := time.Now()
	synctest.Test(t, func(t *testing.T) {
		var err error
		c, err = run(t.Context())
		assert.NoError(t, err)
	})
	t.Logf("%s: %d requests, %d calls, peak %d per slot after the outage, done after %v (took %v)",
		c.Name, c.Requests, c.Calls(), c.Peak(c.Outage.To), c.Done(),
		time.Since(begin).Round(time.Millisecond))
	return c
}

func TestSiteServesItsCapacity(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Site{Capacity: 100, Queue: 10, Outage: Outage{10 * time.Second, 20 * time.Second},
			Network: time.Millisecond}
		s.Open()
		var wg sync.WaitGroup
		for range 3000 { // two hundred a second
			wg.Go(func() { _, _ = s.ask(t.Context()) })
			time.Sleep(5 * time.Millisecond)
		}
		wg.Wait()
		assert.InDelta(t, 1000, Sum(s.served, 0, 10*time.Second), 10, "served in ten seconds")
		assert.Zero(t, Sum(s.served, 10200*time.Millisecond, time.Hour), "served while it was down")
		assert.Equal(t, 3000, Sum(s.load, 0, time.Hour), "counted")
	})
}
