package wire

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

	"github.com/onceward/onceward/internal/redisscript"
)

// Slots are the hash slots of a Cluster.
const Slots = redisscript.Slots

// The first part of a cursor says what the list goes over: names, or the index of uncertain keys.
const positionOfNames, positionOfIndex = "1", "2"

// Position is where a listing continues: at a slot, with the rest of the SCAN of the server that
// has that slot. A server's cursors mean nothing to another server, nor to the same server after a
// restart: the order of its hash table is secret and new.
type Position struct {
	Slot   int
	Run    uint64 // digest of the server's run id
	Cursor uint64 // of SCAN, or of HSCAN
	Index  bool   // the list goes over the index
}

// String returns the cursor that callers keep.
func (p Position) String() string {
	over := positionOfNames
	if p.Index {
		over = positionOfIndex
	}
	return fmt.Sprintf("%s.%d.%x.%x", over, p.Slot, p.Run, p.Cursor)
}

// ParsePosition reads what String wrote; empty is the beginning.
func ParsePosition(s string) (p Position, err error) {
	if s == "" {
		return p, nil
	}
	parts := strings.Split(s, ".")
	if parts[0] != positionOfNames && parts[0] != positionOfIndex || len(parts) != 4 {
		return p, Input("ListOptions.Cursor", "is not one that List of this version has returned")
	}
	slot, err1 := strconv.ParseUint(parts[1], 10, 16)
	run, err2 := strconv.ParseUint(parts[2], 16, 64)
	cursor, err3 := strconv.ParseUint(parts[3], 16, 64)
	p = Position{Slot: int(slot), Run: run, Cursor: cursor, Index: parts[0] == positionOfIndex}
	if err1 != nil || err2 != nil || err3 != nil || slot > Slots || p.String() != s {
		return Position{}, Input("ListOptions.Cursor", "is damaged")
	}
	return p, nil
}

// Master is a server that has keys of ours.
type Master struct {
	Client redis.Cmdable
	Run    uint64
	Keys   int64 // in the database, of all programs; 0 when the server does not say it
	looked int64 // of them, on this page
	// First is its first slot, and Last is the slot before the first slot of the next master. A
	// SCAN goes over all slots of a master, so a master with several ranges of slots is listed
	// once.
	First, Last int
}

// Look counts n names that a SCAN was to look at. Near the end the SCAN has looked at fewer.
func (m *Master) Look(n int) int64 {
	looked := int64(n)
	if m.Keys > 0 {
		looked = min(looked, m.Keys-m.looked)
	}
	m.looked += looked
	return looked
}

// Masters lists the servers that have keys, in the order of their first slots.
func Masters(ctx context.Context, client redis.UniversalClient) ([]Master, error) {
	cluster, ok := client.(*redis.ClusterClient)
	if !ok {
		m, err := masterOf(ctx, client)
		m.Last = Slots - 1
		return []Master{m}, err
	}
	var mu sync.Mutex
	var all []Master
	err := cluster.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		m, err := clusterMaster(ctx, node)
		mu.Lock()
		defer mu.Unlock()
		if err == nil && m.First < Slots {
			all = append(all, m)
		}
		return err
	})
	slices.SortFunc(all, func(a, b Master) int { return cmp.Compare(a.First, b.First) })
	for i := range all { // each has the slots up to the next one's first
		all[i].Last = Slots - 1
		if i+1 < len(all) {
			all[i].Last = all[i+1].First - 1
		}
	}
	return all, err
}

// clusterMaster asks a node itself which slots it has: the other nodes may know it by another
// address than ours.
func clusterMaster(ctx context.Context, node *redis.Client) (Master, error) {
	m, err := masterOf(ctx, node)
	m.First = Slots
	if err != nil {
		return m, err
	}
	me, err := node.ClusterMyID(ctx).Result()
	if err != nil {
		return m, err
	}
	// CLUSTER SLOTS is deprecated for CLUSTER SHARDS, but users.acl grants only the former.
	ranges, err := node.ClusterSlots(ctx).Result() //nolint:staticcheck // see above
	for _, r := range ranges {
		if len(r.Nodes) > 0 && r.Nodes[0].ID == me {
			m.First = min(m.First, r.Start)
		}
	}
	return m, err
}

// masterOf asks a server for its run id, of which it keeps a digest, and for how many keys it has.
// An embedded server says neither.
func masterOf(ctx context.Context, client redis.UniversalClient) (Master, error) {
	fields, err := AskInfo(ctx, client)
	h := fnv.New64a()
	_, _ = h.Write([]byte(fields["run_id"])) // never fails
	return Master{Client: client, Run: h.Sum64(), Keys: fields.Keys(client)}, err
}
