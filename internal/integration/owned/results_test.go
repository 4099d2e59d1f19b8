package owned_test

import (
	"path/filepath"
	"strings"
	"time"

	"github.com/onceward/onceward/internal/integration/internal/results"
)

// keep replaces the row of this scenario in bench/results/torture.json.
func (c *conductor) keep(v *checkResult, seed uint64, took time.Duration) {
	c.t.Helper()
	info, err := c.client.Info(c.t.Context(), "server").Result()
	c.must(err)
	n := c.h.counts
	c.must(results.Keep(filepath.Join("..", "..", "..", "bench", "results", "torture.json"),
		results.Row{
			Scenario: scenario, Store: "owned over redis", Level: "claimed", Seed: seed,
			Messages: len(c.h.sent), Deliveries: len(c.queue),
			Faults: map[string]int{
				"kills": n.kills, "suicides": len(c.h.deaths) - n.kills, "handovers": n.handovers,
				"running": n.running,
				"stops":   n.stops, "pauses": len(c.h.pauses), "restored": n.restored,
				"raised": n.raised,
			},
			Effects: len(c.h.runs), Lost: v.lost, Doubled: v.doubled, Stale: v.stale,
			Explained: v.explained, Stuck: c.stuck, OK: !c.t.Failed(),
			History: took.Round(time.Second).String() +
				", judged from the ledgers of all processes",
		}, map[string]string{"redis": between(info, "redis_version:", "\r")}))
}

const scenario = "owned: kills, pauses, handovers, races, old snapshots, raised counts"

func between(text, from, to string) string {
	_, rest, _ := strings.Cut(text, from)
	found, _, _ := strings.Cut(rest, to)
	return found
}
