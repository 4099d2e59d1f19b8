package redis_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/dedup"
	"github.com/onceward/onceward/internal/servertest"
)

// recovery is how long after the loss of a master, of a Cluster whose node timeout is two
// seconds, every new key must be served again. It mostly takes less than 6 s; a slow machine
// elects later.
const recovery = 10 * time.Second

// TestMasterDies kills, or freezes, a master while messages are delivered. It is replaced
// in time, nothing is lost, and a call takes no longer than its budget although pooled connections
// lead to a server that does not answer.
func TestMasterDies(t *testing.T) {
	t.Parallel()
	for _, fault := range []struct {
		name       string
		hit, after func(*servertest.Server)
	}{
		{"SIGKILL", func(s *servertest.Server) {
			s.Kill(1)
		}, func(s *servertest.Server) { s.Start(1) }},
		{"SIGSTOP", func(s *servertest.Server) {
			s.Stop(1)
		}, func(s *servertest.Server) { s.Cont(1) }},
	} {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			c := startCluster(t)
			replica := c.replicaOf(t, 1)
			client := advised(t, c.Addrs)
			fresh := probe(t, client)
			work := begin(t, client, longLease, 0)
			fault.hit(c.Server)
			recovered(t, fresh, time.Now())
			c.promoted(t, replica)
			work.through(t, "promotion")
			fault.after(c.Server)
			c.demoted(t, 1)
			work.through(t, "return of the old master")
			work.end(t, func(t *testing.T, l *load, v checkResult) {
				wantSafe(t, l, v)
				// An effect runs again when its record, or its claim, had not reached the
				// replica; never because its completion had to wait for the promotion.
				assert.LessOrEqual(t, v.doubled, v.forgotten+workers, "effects ran again")
			})
		})
	}
}

// probe is a Deduper that gives up soon.
func probe(t *testing.T, client redis.UniversalClient) *dedup.Deduper {
	t.Helper()
	cfg := dedup.Config{Window: window, LeaseTTL: shortLease, StoreTimeout: 200 * time.Millisecond}
	return layouts[0].deduper(t, client, cfg)
}

// recovered waits until fresh keys can be claimed at every master.
func recovered(t *testing.T, d *dedup.Deduper, since time.Time) {
	t.Helper()
	round := 0
	eventually(t, 30*time.Second, "fresh keys are served", func() bool {
		round++
		claims, err := d.ClaimBatch(t.Context(), requests(fmt.Sprintf("fresh-%d", round), 60))
		require.NoError(t, err)
		return !slices.ContainsFunc(claims, func(c *dedup.Claim) bool {
			return c.Outcome != dedup.Acquired
		})
	})
	took := time.Since(since)
	t.Logf("every key is served again after %v", took.Round(time.Millisecond))
	assert.LessOrEqual(t, took, recovery, "recovery")
}

func wantSafe(t *testing.T, l *load, v checkResult) {
	t.Helper()
	assert.LessOrEqual(t, l.longest, budget(l.cfg), "a call")
	assert.Zero(t, v.lost, "%+v", v)
	assert.False(t, l.survives && v.forgotten > 0, "%+v", v)
}

// budget is how long a call may take: four round trips and the pauses between them to
// claim, and the lease and a last round trip to complete. A tenth on top is for a busy
// machine.
func budget(cfg dedup.Config) time.Duration {
	return max(4*cfg.StoreTimeout+100*time.Millisecond, cfg.LeaseTTL+cfg.StoreTimeout) * 11 / 10
}

// demoted waits until a former master has accepted that it is one.
func (c *cluster) demoted(t *testing.T, node int) {
	t.Helper()
	eventually(t, 20*time.Second, "the former master is a replica", func() bool {
		return c.nodes[node-1].Do(t.Context(), "ROLE").Err() == nil && !isMaster(t, c.nodes[node-1])
	})
}

func isMaster(t *testing.T, node *redis.Client) bool {
	t.Helper()
	role, err := node.Do(t.Context(), "ROLE").Slice()
	return err == nil && len(role) > 0 && role[0] == "master"
}
