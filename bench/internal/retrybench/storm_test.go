package retrybench

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// With -storm the rows are written to a file: the suite reads them.
var (
	stormFile = flag.String("storm", "", "write the rows of the simulations there")
	rounds    = flag.Int("rounds", 1, "run everything so often")
)

// TestStorm runs what is drawn, and holds it to what the picture is to show.
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
		if !row.OK {
			t.Errorf("%s: %v %s is not %s", row.Name, row.Value, row.Unit, row.Goal)
		}
	}
	if *stormFile == "" {
		return
	}
	data, err := json.Marshal(rows)
	if err == nil {
		err = os.WriteFile(*stormFile, data, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func round(t *testing.T) (r Round) {
	t.Helper()
	for _, wait := range Waits {
		r.Comeback = append(r.Comeback, simulate(t, func(t *testing.T) (Trace, error) {
			return Comeback(t.Context(), TheHerd, wait)
		}))
	}
	for _, guard := range Guards {
		r.Through = append(r.Through, simulate(t, func(t *testing.T) (Trace, error) {
			return Through(t.Context(), TheTraffic, guard)
		}))
	}
	var errs [2]error
	r.Deaf, errs[0] = Layers(t.Context(), 4, false)
	r.Told, errs[1] = Layers(t.Context(), 4, true)
	if err := errors.Join(errs[:]...); err != nil || r.Deaf != 81 {
		t.Errorf("layers: %d calls when nobody is told, want 81; %v", r.Deaf, err)
	}
	return r
}

// simulate runs one simulation in fake time.
func simulate(t *testing.T, run func(*testing.T) (Trace, error)) (c Trace) {
	t.Helper()
	begin := time.Now()
	synctest.Test(t, func(t *testing.T) {
		var err error
		if c, err = run(t); err != nil {
			t.Error(err)
		}
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
		if up := Sum(s.served, 0, 10*time.Second); up < 990 || up > 1010 {
			t.Errorf("served %d in ten seconds", up)
		}
		if down := Sum(s.served, 10200*time.Millisecond, time.Hour); down != 0 {
			t.Errorf("served %d while it was down", down)
		}
		if total := Sum(s.load, 0, time.Hour); total != 3000 {
			t.Errorf("counted %d of 3000", total)
		}
	})
}
