//go:build long

package redis_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// frozenRounds is how often a master of a Cluster is frozen, and replaced by its replica. The old
// master is then a replica itself, and the next round freezes the other node.
const frozenRounds = 50

// TestFrozenMasterRounds repeats TestFrozenMasterWakesUp for a Cluster: in each round and layout
// about 200 keys of the frozen node, none of which may have two owners. Another worker claims them
// within six seconds of the freeze. The Cluster uses most of that time to promote the replica.
func TestFrozenMasterRounds(t *testing.T) {
	const lease, most = 7 * time.Second, 6 * time.Second
	c := startCluster(t)
	// With the second that the README advises, two rounds of fifty took 6.4 and 6.8 s. The Cluster
	// took 4.3 and 4.5 s of them. Then a client that asks the frozen node for the slots waits for
	// it, once or twice.
	next := impatiently(t, c.Addrs, time.Second/2)
	master := 1
	owned, doubled, longest, ours := 0, 0, time.Duration(0), time.Duration(0)
	for round := range frozenRounds {
		replica := c.replicaOf(t, master)
		eventually(t, 20*time.Second, "the replica has the data of its master", func() bool {
			text, err := c.nodes[replica-1].Info(t.Context(), "replication").Result()
			return err == nil && strings.Contains(text, "master_link_status:up")
		})
		f := c.freezable(t, master, fmt.Sprintf("ow%d", round), next)
		races, recovered := f.thaw(t, lease, true)
		for _, r := range races {
			n := r.doubled(t, f)
			owned, doubled = owned+len(r.taken), doubled+n
			assert.Zero(t, n, "round %d, %s: keys have two owners", round, r.name)
		}
		longest, ours = max(longest, recovered), max(ours, recovered-f.election)
		assert.LessOrEqual(t, recovered, most,
			"round %d: %v after the freeze, of which the promotion took %v", round,
			recovered.Round(time.Millisecond), f.election.Round(time.Millisecond))
		old := master
		master = replica
		eventually(t, 20*time.Second, "the old master is a replica", func() bool {
			return strings.Contains(c.myself(t, old), "slave")
		})
	}
	t.Logf("%d rounds, %d keys claimed from the successor, %d with two owners, recovered after %v at most, and %v after the promotion",
		frozenRounds, owned, doubled, longest.Round(time.Millisecond), ours.Round(time.Millisecond))
}
