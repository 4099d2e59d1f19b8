package filterbench

import (
	"testing"
	"time"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/server"
	"github.com/onceward/onceward/bench/internal/work"
	"github.com/onceward/onceward/sqladapter"
)

// The filter saves the lookups that it is there for, and no more records are made than keys.
func TestLayered(t *testing.T) {
	t.Parallel()
	redis, err := server.Open(t.Context(), server.Embedded, 0)
	if err != nil {
		t.Fatal(err)
	}
	records, err := server.OpenDatabase(t.Context(), sqladapter.SQLite, "", 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := redis.Close(); err != nil {
			t.Error(err)
		}
		if err := records.Close(); err != nil {
			t.Error(err)
		}
	})
	e := &env{sizes: []int{20_000}, budget: time.Millisecond, redis: redis, records: records}
	rows, err := e.countLookups(t.Context(), 50)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if !r.OK {
			t.Errorf("%s: %.2f %s", r.Name, r.Value, r.Unit)
		}
	}
	if all := rows[1].AgainstValue; all < 99.9 || all > 100.1 {
		t.Errorf("without the filter %.2f lookups for 100 keys", all)
	}
	if old := rows[1].Value; old < 49 || old > 52 {
		t.Errorf("with the filter %.2f lookups for 100 keys of which 50 are old", old)
	}
	opened := &harness.Setup{}
	l, err := e.newLayers(t.Context(), opened, true)
	if err != nil {
		t.Fatal(err)
	}
	keys := harness.FreshKeys(2 * batchIDs)
	l.mix(keys, 50)
	if err := work.InBatches(2, batchIDs, l.Batch(work.Either, nil))(t.Context(),
		&harness.Timing{Keys: keys}); err != nil {
		t.Error(err)
	}
	if l.records.lookups.Load() < batchIDs || l.records.lookups.Load() > batchIDs+20 {
		t.Errorf("%d lookups for %d old keys", l.records.lookups.Load(), batchIDs)
	}
	if err := opened.Close(); err != nil {
		t.Error(err)
	}
}
