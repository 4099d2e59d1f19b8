package guard

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/internal/redisscript"
	"github.com/onceward/onceward/redisadapter/internal/wire"
)

// A canary is a key without an expiry that nobody deletes: when it is gone, the data next to it is
// gone as well. Its value is "1 STATE EPOCH", EPOCH 16 random bytes in hexadecimal:
//
//	1 ok EPOCH           written by Init
//	1 lost EPOCH MILLIS  written by a process that found it missing, with the server's time
//	1 ack EPOCH          written by ClearAmnesia
const (
	canaryVersion = "1"
	CanaryOK      = "ok"
	canaryLost    = "lost"
	CanaryAck     = "ack"
)

const (
	// clusterCanaries are spread evenly over the slots of a Cluster, so that every master with 512
	// slots in a row holds at least one, however slots are moved.
	clusterCanaries = 64
)

// Canary is a decoded value.
type Canary struct {
	State string
	lost  time.Time // by the server's clock
}

// ParseCanary reads the value of a canary.
func ParseCanary(value string) (Canary, error) {
	parts := strings.Split(value, " ")
	bad := fmt.Errorf("redisadapter: a canary holds %d bytes that are not a canary", len(value))
	if len(parts) < 3 || parts[0] != canaryVersion || len(parts[2]) != 32 {
		return Canary{}, bad
	}
	switch {
	case len(parts) == 3 && (parts[1] == CanaryOK || parts[1] == CanaryAck):
		return Canary{State: parts[1]}, nil
	case len(parts) == 4 && parts[1] == canaryLost:
		ms, err := strconv.ParseInt(parts[3], 10, 64)
		if err != nil || ms < 0 {
			return Canary{}, bad
		}
		return Canary{State: canaryLost, lost: time.UnixMilli(ms)}, nil
	}
	return Canary{}, bad
}

// NewCanary returns a value with an epoch that was never used before.
func NewCanary(state string, lost time.Time) string {
	var epoch [16]byte
	_, _ = rand.Read(epoch[:]) // never fails
	value := canaryVersion + " " + state + " " + hex.EncodeToString(epoch[:])
	if state == canaryLost {
		value += " " + strconv.FormatInt(lost.UnixMilli(), 10)
	}
	return value
}

// Canaries are all canaries of a deployment: one on a single server.
type Canaries struct {
	Client  redis.UniversalClient
	Cluster *redis.ClusterClient // nil for a single server
	prefix  string
	Keys    []string
	// holders maps each master to a canary that it holds.
	holders atomic.Pointer[map[*redis.Client]int]
}

// NewCanaries returns the canaries of a prefix.
func NewCanaries(client redis.UniversalClient, prefix string) *Canaries {
	cluster, _ := client.(*redis.ClusterClient)
	tags := canaryTags()
	if cluster == nil {
		tags = tags[:1]
	}
	c := &Canaries{Client: client, Cluster: cluster, prefix: prefix}
	for _, tag := range tags {
		c.Keys = append(c.Keys, prefix+":canary:{"+tag+"}")
	}
	return c
}

// canaryTags are the shortest numbers whose slots lie in the middle half of every 64th of the
// slots. They are the same forever: deployments hold keys named by them.
var canaryTags = sync.OnceValue(func() []string {
	const span = wire.Slots / clusterCanaries
	tags := make([]string, clusterCanaries)
	for n, found := 0, 0; found < len(tags); n++ {
		tag := strconv.Itoa(n)
		slot := redisscript.Slot(tag)
		at := slot % span
		if tags[slot/span] == "" && at >= span/4 && at < span*3/4 {
			tags[slot/span] = tag
			found++
		}
	}
	return tags
})

// guards returns, for each of n keys, the number of a canary on the same server, or -1 if that
// server holds none. It uses the client's own view of the Cluster, asks no server, and needs no
// keys for a single server.
func (c *Canaries) guards(ctx context.Context, keys []string, n int) []int {
	at := make([]int, n)
	if c.Cluster == nil {
		return at
	}
	holders := c.holders.Load()
	checked := make(map[*redis.Client]bool, 8)
	for i, key := range keys {
		node, err := c.Cluster.MasterForKey(ctx, key)
		if err != nil {
			at[i] = -1
			continue
		}
		if !checked[node] {
			checked[node] = true
			if holders == nil || !c.holds(ctx, node, *holders) {
				holders = c.Find(ctx)
			}
		}
		n, found := (*holders)[node]
		if !found {
			n = -1
		}
		at[i] = n
	}
	return at
}

// holds reports whether a node still has the canary that is known for it: slots move.
func (c *Canaries) holds(ctx context.Context, node *redis.Client,
	holders map[*redis.Client]int) bool {
	n, found := holders[node]
	if !found {
		return false
	}
	holder, err := c.Cluster.MasterForKey(ctx, c.Keys[n])
	return err == nil && holder == node
}

// Find looks for a canary on every node.
func (c *Canaries) Find(ctx context.Context) *map[*redis.Client]int {
	holders := make(map[*redis.Client]int)
	for n, key := range c.Keys {
		if node, err := c.Cluster.MasterForKey(ctx, key); err == nil {
			if _, found := holders[node]; !found {
				holders[node] = n
			}
		}
	}
	c.holders.Store(&holders)
	return &holders
}

// Sight is one look at a canary.
type Sight struct {
	value   string
	Missing bool
	Err     error // why it could not be read
}

func sightOf(cmd *redis.StringCmd) Sight {
	value, err := cmd.Result()
	switch {
	case err == nil:
		return Sight{value: value}
	case errors.Is(err, redis.Nil):
		return Sight{Missing: true}
	case wire.Classify(err) == wire.ClassUnreadable: // of another type, so not ours any more
		return Sight{}
	}
	return Sight{Err: err}
}

// Read looks at all canaries, in one pipeline, on a Cluster one per node.
func (c *Canaries) Read(ctx context.Context) []Sight {
	cmds := make([]*redis.StringCmd, len(c.Keys))
	pipe := c.Client.Pipeline()
	for i, key := range c.Keys {
		cmds[i] = pipe.Get(ctx, key)
	}
	_, _ = redisscript.Exec(ctx, c.Client, pipe) // every command carries its own error
	sights := make([]Sight, len(cmds))
	for i, cmd := range cmds {
		sights[i] = sightOf(cmd)
	}
	return sights
}

// Write gives canaries a new value. With missing it writes only canaries that do not exist: another
// process may have been faster.
func (c *Canaries) Write(ctx context.Context, which []int, missing bool,
	value func() string) error {
	if len(which) == 0 {
		return nil
	}
	pipe := c.Client.Pipeline()
	for _, i := range which {
		mode := ""
		if missing {
			mode = "NX"
		}
		pipe.SetArgs(ctx, c.Keys[i], value(), redis.SetArgs{Mode: mode})
	}
	cmds, _ := redisscript.Exec(ctx, c.Client, pipe)
	for _, cmd := range cmds {
		if err := cmd.Err(); err != nil && !errors.Is(err, redis.Nil) {
			return err
		}
	}
	return nil
}
