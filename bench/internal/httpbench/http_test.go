package httpbench

import (
	"testing"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/server"
)

// Every side but those of PostgreSQL does what its row says: the handler runs once for each new key
// and not at all for a replay, or the timing fails.
func TestSides(t *testing.T) {
	s, err := server.Open(t.Context(), server.Embedded, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	e := &env{redis: s}
	r := harness.Runner{Rounds: 1, MaxKeys: 64, Budget: 5 * time.Millisecond}
	rows, err := r.Run(t.Context(), e.groups())
	if err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for _, row := range rows {
		if row.Value <= 0 || row.P50Micros <= 0 || row.P99Micros < row.P50Micros ||
			row.Allocs <= 0 || row.Against != "" && row.Ratio <= 0 {
			t.Errorf("%+v", row)
		}
		seen[row.Name+": "+row.Side] = true
	}
	if want := 2 * (len(family[New].sides) - len(needsSQL) +
		len(family[Replay].sides)); len(seen) != want {
		t.Errorf("%d sides were told of, want %d", len(seen), want)
	}
}

// A key that is not new where it should be, or new where it should be known, is an error and no
// timing.
func TestWrongWorkIsNotTimed(t *testing.T) {
	p := &party{name: oursMemory}
	if err := openers[oursMemory](t.Context(), nil, p, 1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	p.connect(1)
	work := &harness.Timing{Keys: harness.FreshKeys(3), Latency: make([]time.Duration, 3)}
	if err := p.side().Run(t.Context(), work); err != nil {
		t.Fatal(err)
	}
	if err := p.side().Run(t.Context(), work); err == nil {
		t.Error("replays were timed as new requests")
	}
	p.again = true
	if err := p.side().Run(t.Context(), work); err != nil {
		t.Error(err)
	}
	work.Keys = harness.FreshKeys(3)
	if err := p.side().Run(t.Context(), work); err == nil {
		t.Error("new requests were timed as replays")
	}
}

// What the client counts as its own is next to nothing: the rows are about servers.
func TestClientAllocatesNothing(t *testing.T) {
	p := &party{name: fiberBare}
	if err := openers[fiberBare](t.Context(), nil, p, 1); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	p.connect(1)
	const n = 2000
	keys := harness.FreshKeys(n)
	allocs := testing.AllocsPerRun(3, func() {
		if err := p.send(t.Context(), keys, nil); err != nil {
			t.Fatal(err)
		}
	})
	// of client and a server that allocates nothing either
	if each := allocs / n; each > mostAllocs {
		t.Errorf("%v allocations for each request", each)
	}
}
