package torture_test

import (
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/onceward/onceward/integration/internal/results"
)

// keeping is for rows that end at the same time.
var keeping sync.Mutex

// keep writes a row for the table, where one is wanted.
func (r *row) keep(t *testing.T, c *conductor, h *history, v *verdict, took time.Duration) {
	t.Helper()
	name := os.Getenv(resultsEnv)
	if name == "" {
		return
	}
	keeping.Lock()
	defer keeping.Unlock()
	made := compositions[c.cfg.Composition]
	err := results.Keep(name, results.Row{
		Scenario: r.id + " " + r.name, Store: made.store, Level: made.level, Seed: c.cfg.Seed, Messages: h.messages, Deliveries: c.source.given,
		Effects: h.runs, Faults: c.faults(h), Lost: v.lost, Doubled: v.doubled, Explained: v.explained, SelfDuplicates: v.selfDuplicates,
		Stuck: v.stuck + c.stuck, OK: !t.Failed(),
		History: fmt.Sprintf("%v; Porcupine: %s, %d operations", took.Round(time.Second), strings.ToLower(string(v.linear)), v.operations),
	}, nil)
	c.must(err)
}
