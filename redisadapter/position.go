package redisadapter

import (
	"cmp"
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/redisadapter/internal/guard"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

const positionVersion = "1"

// position is where a listing continues: at a slot, with what is left of the SCAN of the server
// that has it. A server's cursors mean nothing to another, nor to itself after a restart: the order
// of its hash table is secret and new.
type position struct {
	slot   int
	run    uint64 // digest of the server's run id
	cursor uint64 // of SCAN
}

// String is the cursor that callers keep.
func (p position) String() string {
	return fmt.Sprintf("%s.%d.%x.%x", positionVersion, p.slot, p.run, p.cursor)
}

// parsePosition reads what String wrote; empty is the beginning.
func parsePosition(s string) (p position, err error) {
	if s == "" {
		return p, nil
	}
	parts := strings.Split(s, ".")
	if parts[0] != positionVersion || len(parts) != 4 {
		return p, input("ListOptions.Cursor", "is not one that List of this version has returned")
	}
	slot, err1 := strconv.ParseUint(parts[1], 10, 16)
	run, err2 := strconv.ParseUint(parts[2], 16, 64)
	cursor, err3 := strconv.ParseUint(parts[3], 16, 64)
	p = position{slot: int(slot), run: run, cursor: cursor}
	if err1 != nil || err2 != nil || err3 != nil || slot > guard.Slots || p.String() != s {
		return position{}, input("ListOptions.Cursor", "is damaged")
	}
	return p, nil
}

// master is a server that has keys of ours.
type master struct {
	client redis.Cmdable
	run    uint64
	keys   int64 // in the database, of everybody; 0 when the server does not say it
	looked int64 // of them, on this page
	// first is its first slot, and last the one before the next master's first: its SCAN goes over
	// all it has, so a master whose slots are not a single range is in the order once.
	first, last int
}

// look counts n names that a SCAN was to look at: it looks at fewer where there are no more.
func (m *master) look(n int) int64 {
	looked := int64(n)
	if m.keys > 0 {
		looked = min(looked, m.keys-m.looked)
	}
	m.looked += looked
	return looked
}

// masters lists the servers that have keys, in the order of their first slots.
func masters(ctx context.Context, client redis.UniversalClient) ([]master, error) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		m, err := masterOf(ctx, client)
		m.last = guard.Slots - 1
		return []master{m}, err
	}
	var mu sync.Mutex
	var all []master
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		m, err := clusterMaster(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		if err == nil && m.first < guard.Slots {
			all = append(all, m)
		}
		return err
	})
	slices.SortFunc(all, func(a, b master) int { return cmp.Compare(a.first, b.first) })
	for i := range all { // each stands for what lies between it and the next
		all[i].last = guard.Slots - 1
		if i+1 < len(all) {
			all[i].last = all[i+1].first - 1
		}
	}
	return all, err
}

// clusterMaster asks a node itself what it has: the address under which it is known to
// the others may be another than the one under which we reach it.
func clusterMaster(ctx context.Context, node *redis.Client) (master, error) {
	m, err := masterOf(ctx, node)
	m.first = guard.Slots
	if err != nil {
		return m, err
	}
	me, err := node.ClusterMyID(ctx).Result()
	if err != nil {
		return m, err
	}
	// CLUSTER SLOTS, which CLUSTER SHARDS is to replace: users.acl grants it alone.
	ranges, err := node.ClusterSlots(ctx).Result() //nolint:staticcheck // see above
	for _, r := range ranges {
		if len(r.Nodes) > 0 && r.Nodes[0].ID == me {
			m.first = min(m.first, r.Start)
		}
	}
	return m, err
}

// masterOf asks a server which life of it this is, of which it keeps a digest, and how many
// keys it has. An embedded one says neither.
func masterOf(ctx context.Context, client redis.UniversalClient) (master, error) {
	fields, err := wire.AskInfo(ctx, client)
	h := fnv.New64a()
	_, _ = h.Write([]byte(fields["run_id"])) // never fails
	return master{client: client, run: h.Sum64(), keys: fields.Keys(client)}, err
}
