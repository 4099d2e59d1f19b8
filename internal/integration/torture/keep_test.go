package torture_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/onceward/onceward/internal/integration/internal/results"
)

// keeping is locked while a row adds its result, because several rows may end at the same time.
var keeping sync.Mutex

// result returns the result of a row.
func (r *row) result(c *conductor, h *history, v *checkResult, took time.Duration) results.Row {
	made := compositions[c.cfg.Composition]
	return results.Row{
		Scenario: r.id + " " + r.name, Store: made.store, Level: made.level, Seed: c.cfg.Seed,
		Messages: h.messages, Deliveries: c.source.given,
		Effects: h.runs, Faults: c.faults(h), Lost: v.lost, Doubled: v.doubled,
		Explained: v.explained, SelfDuplicates: v.selfDuplicates,
		Stuck: v.stuck + c.stuck, Porcupine: told(v), Operations: v.operations,
		Deaths: len(h.deaths), Seconds: int(took.Round(time.Second).Seconds()), OK: !c.t.Failed(),
	}
}

// told returns the result of Porcupine as a text.
func told(v *checkResult) string {
	text := strings.ToLower(string(v.linear))
	if v.open > 0 {
		text += fmt.Sprintf(", %d keys open", v.open)
	}
	return text
}

// keep adds a row to the file that resultsEnv names, if there is one.
func keep(c *conductor, row results.Row) {
	name := os.Getenv(resultsEnv)
	if name == "" {
		return
	}
	keeping.Lock()
	defer keeping.Unlock()
	c.must(results.Keep(name, row, c.versions))
}
