package harness

import (
	"strings"
	"testing"
	"time"
)

func TestBinds(t *testing.T) {
	const rate = 1e5 // so that 10 us of CPU per message are one core
	for _, c := range []struct {
		name                        string
		client, redis, broker, busy float64
		want                        string
	}{
		{"one thread", 2, 9, 0, 11,
			"the thread of Redis (of 2 cores: client 0.20, Redis 0.90, broker 0.00, other programs 0.00)"},
		{"cores are full", 12, 5, 1, 18, "CPU of the client ("},
		{"with those of others", 8, 2, 1, 18,
			"CPU of the client (of 2 cores: client 0.80, Redis 0.20, broker 0.10, other programs 0.70)"},
		{"broker", 5, 2, 11, 18, "CPU of the broker ("},
		{"Redis and not its thread alone", 5, 8, 4, 18, "CPU of Redis ("},
		{"round trips", 5, 2, 1, 8, "no processor is full, it waits in part ("},
		{"the machine is unknown", 12, 5, 1, 0,
			"CPU of the client (of 2 cores: client 1.20, Redis 0.50, broker 0.10, other programs 0.00)"},
	} {
		got := binds(Row{Value: rate, ClientUS: c.client, ServerUS: c.redis, BrokerUS: c.broker,
			BusyUS: c.busy}, 2)
		if !strings.HasPrefix(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// In every round the slower of two sides counts, and the row names the one that was slower
// in the median.
func TestSlowerOfTwo(t *testing.T) {
	samples := map[string][]Sample{"a": {{Rate: 10}, {Rate: 30}, {Rate: 10}},
		"b": {{Rate: 20}, {Rate: 15}, {Rate: 40}}, "us": {{Rate: 5}, {Rate: 5}, {Rate: 5}}}
	row := Group{}.row(Pair{Side: "us", Against: "b", Or: "a", Metric: Messages,
		Goal: AtLeast(0.5, 0)}, samples)
	if row.Against != "a" || row.AgainstValue != 10 || row.Ratio != 0.5 ||
		row.Spread != [2]float64{1. / 3, 0.5} || !row.OK {
		t.Errorf("%+v", row)
	}
	if row := (Group{}.row(Pair{Side: "us", Against: "a", Or: "b", Metric: Messages},
		samples)); row.Against != "a" || row.Ratio != 0.5 {
		t.Errorf("the other way round: %+v", row)
	}
}

func TestReadingsAreFarApart(t *testing.T) {
	at := time.Now()
	before := Reading{ended: clock{at: at, client: time.Second}, server: time.Second, mallocs: 5}
	after := Reading{began: clock{at: at.Add(2 * time.Second), client: 3 * time.Second},
		busy: 8 * time.Second, server: 2 * time.Second, broker: 4 * time.Second, mallocs: 3005}
	want := Sample{Rate: 500, ClientUS: 2000, ServerUS: 1000, BrokerUS: 4000,
		BusyUS: 8000, Allocs: 3}
	if got := before.To(after, 1000); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
