package watch

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"
)

// Server is what a Redis, or a master of a Cluster, says of all its clients together.
type Server struct {
	Addr       string  `json:"addr"`
	UsedMemory float64 `json:"used_memory_bytes"`
	MaxMemory  float64 `json:"max_memory_bytes"` // 0: none
	Clients    float64 `json:"clients"`
	Commands   float64 `json:"commands_per_second"`
	Evicted    float64 `json:"evicted_keys_per_second"`
	Expired    float64 `json:"expired_keys_per_second"`
}

// Table is what PostgreSQL counts for one table.
type Table struct {
	Name     string  `json:"name"`
	Inserted float64 `json:"inserted_per_second"`
	Updated  float64 `json:"updated_per_second"`
	Deleted  float64 `json:"deleted_per_second"`
	Live     float64 `json:"live_rows"` // estimated
	Dead     float64 `json:"dead_rows"` // estimated
}

// counts are numbers of one server, or table, by name.
type counts map[string]float64

// askRedis reads INFO of every master.
func askRedis(ctx context.Context, client redis.UniversalClient) (map[string]counts, error) {
	all := make(map[string]counts)
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		text, err := client.Info(ctx).Result()
		all["redis"] = infoOf(text)
		return all, err
	}
	var mu sync.Mutex
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		text, err := node.Info(ctx).Result()
		mu.Lock()
		defer mu.Unlock()
		all[node.Options().Addr] = infoOf(text)
		return err
	})
	mu.Lock()
	defer mu.Unlock()
	return all, err
}

// infoOf reads the numbers of INFO.
func infoOf(text string) counts {
	c := make(counts)
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if n, err := strconv.ParseFloat(value, 64); err == nil {
			c[name] = n
		}
	}
	return c
}

// rate is a second; a counter that has become less was begun again.
func (c counts) rate(before counts, name string, seconds float64) float64 {
	grown := c[name]
	if before[name] <= grown {
		grown -= before[name]
	}
	return grown / seconds
}

// servers are those that were asked before, too.
func servers(before, after map[string]counts, seconds float64) (all []Server) {
	for addr, c := range after {
		old, ok := before[addr]
		if !ok {
			continue
		}
		all = append(all, Server{
			Addr: addr, UsedMemory: c["used_memory"], MaxMemory: c["maxmemory"],
			Clients:  c["connected_clients"],
			Commands: c.rate(old, "total_commands_processed", seconds),
			Evicted:  c.rate(old, "evicted_keys", seconds),
			Expired:  c.rate(old, "expired_keys", seconds),
		})
	}
	slices.SortFunc(all, func(a, b Server) int { return strings.Compare(a.Addr, b.Addr) })
	return all
}

// askTable reads what PostgreSQL counts. It counts what is committed, and a second late.
func askTable(ctx context.Context, db *sql.DB, table string) (counts, error) {
	names := []string{"n_tup_ins", "n_tup_upd", "n_tup_del", "n_live_tup", "n_dead_tup"}
	values := make([]float64, len(names))
	to := make([]any, len(names))
	for i := range values {
		to[i] = &values[i]
	}
	err := db.QueryRowContext(ctx, "SELECT "+strings.Join(names, ", ")+" FROM pg_stat_user_tables WHERE relid = to_regclass($1)", table).Scan(to...) // names are constants
	if errors.Is(err, sql.ErrNoRows) {
		return nil, fmt.Errorf("there is no table %s", table)
	}
	c := make(counts)
	for i, name := range names {
		c[name] = values[i]
	}
	return c, err
}

func tableOf(name string, before, after counts, seconds float64) *Table {
	if before == nil || after == nil {
		return nil
	}
	return &Table{
		Name: name, Live: after["n_live_tup"], Dead: after["n_dead_tup"],
		Inserted: after.rate(before, "n_tup_ins", seconds),
		Updated:  after.rate(before, "n_tup_upd", seconds),
		Deleted:  after.rate(before, "n_tup_del", seconds),
	}
}
