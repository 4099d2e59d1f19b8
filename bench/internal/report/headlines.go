package report

import (
	"fmt"
	"path/filepath"
	"slices"

	"github.com/onceward/onceward/bench/internal/harness"
	"github.com/onceward/onceward/bench/internal/must"
)

// Readme is README.md, relative to the folder docs. Its table has one row for each of five areas.
const Readme = "../README.md"

// headline is a row of README's table: a row of an area's results, and the names for the table.
type headline struct{ area, work, against, name, side, rival, unit string }

var headlines = []headline{
	{"redis", "Redis: new keys, claimed and recorded by 256 callers", "go-redis, two commands by hand",
		"256 callers, new keys", "onceward full", "plain go-redis two-command cycle",
		harness.Rate.Unit},
	{"kafka", "Kafka: new messages of 4 partitions", "`SET NX`, effect, `SET` by hand",
		"4 partitions, 100 B, 0 % duplicates", "adapter, full", "naive SET NX, effect, SET",
		"messages/s"},
	{"sql", "PostgreSQL: record and effect, batches of 256", "a transaction a message by hand",
		"PostgreSQL, 8 connections, batch 256", "record + effect, handler per batch",
		"a transaction per message, by hand", harness.Rate.Unit},
	{"http", "HTTP over Redis: time of a new request", "fiber's middleware over Redis",
		"new request, 1 connection", "onceward, Redis", "fiber idempotency, Redis", "us (p50)"},
	{"outbox", "Outbox: four relays, in order for each key", "the recipe with `SKIP LOCKED`",
		"outbox relay, four relays, order per key, broker at 0 ms", "onceward, 4 relays",
		"row-at-a-time recipe, 1 relay", "messages/s"},
}

// headlineTable returns README's table.
func headlineTable(results string) string {
	text := "| work | reached | compared with | ratio | commit |\n|---|---|---|---|---|\n"
	for _, h := range headlines {
		r := must.Get(harness.Read(filepath.Join(results, h.area+".json")))
		i := slices.IndexFunc(r.Rows, func(row harness.Row) bool {
			return row.Name == h.name && row.Side == h.side && row.Against == h.rival &&
				row.Unit == h.unit
		})
		must.True(i >= 0, "report: %s.json has no row of %q compared with %q", h.area, h.name,
			h.rival)
		text += row(h.work, valueOf(r.Rows[i]), h.against, spread(r.Rows[i]), r.Commit)
	}
	return text
}

// Compare is the page that compares this library with others.
const Compare = "compare.md"

// peers are the sides of its table, with their names there.
var peers = [][2]string{
	{"onceward full", "Onceward, Full"},
	{"plain go-redis", "plain go-redis, two commands"},
	{"naive GET, SET NX, SET", "GET, SET NX, SET"},
	{"redsync: Lock, Unlock (remembers nothing)", "redsync: Lock, Unlock; it remembers nothing"},
	{"redislock: GET, Obtain, SET, Release", "redislock: GET, Obtain, SET, Release"},
	{"fiber idempotency sequence (lock in process)", "fiber's sequence, lock in the process"},
	{"watermill deduplicator (in process)", "watermill Deduplicator, in the process"},
}

// peerTable shows the keys per second of each side, by the number of callers.
func peerTable(r harness.Results) string {
	text := "| keys/s | 1 caller | 16 callers | 128 callers |\n|---|---|---|---|\n"
	for _, side := range peers {
		cells := []any{side[1]}
		for _, callers := range []float64{1, 16, 128} {
			like := harness.Row{Workload: "peers", X: callers, Unit: harness.Rate.Unit}
			found := run{r}.Find(like, side[0], "")
			must.True(found.Name != "", "report: redis.json has no peer %q", side[0])
			cells = append(cells, number(found.Value))
		}
		text += row(cells...)
	}
	return text + fmt.Sprintf("\nCommit %s, %s.\n", r.Commit, r.Date)
}
