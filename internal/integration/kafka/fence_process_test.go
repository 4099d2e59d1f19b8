package kafka_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/sqladapter"
)

const fencedPartitions = 6

// fencedGroup is processes of a group on Apache Kafka, whose effects and fence are in PostgreSQL.
type fencedGroup struct {
	t     *testing.T
	cfg   workerConfig
	db    *sql.DB
	fence *sqladapter.Fence
	log   map[int32][]string // what was produced
}

// TestFenceThroughAKill has three processes. The first is killed inside a transaction. It has
// committed ranges before, but not to Kafka. The second stops itself before a transaction, loses
// its place in the group, and continues when the third has done all. Every message has one effect.
func TestFenceThroughAKill(t *testing.T) {
	for _, client := range []string{"sarama", "franz"} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			g := newFencedGroup(t, client)
			heir := spawn(t, g.cfg)
			again, zombies := int64(0), int64(0)
			// In a rebalance just before the kill the victim commits: that round proves nothing.
			for round := 0; round < fenceRounds || again == 0 && round < fenceRounds+5; round++ {
				zombies += g.round()
				again = heir.foundDone()
			}
			g.end(heir)
			again = heir.foundDone()
			t.Logf("%d messages; of those that the heir was given %d were done; zombies went on with %d", g.produced(), again, zombies)
			assert.NotZero(t, again,
				"nothing that was done was delivered again: the kills proved nothing")
			g.wantOnce()
		})
	}
}

func newFencedGroup(t *testing.T, client string) *fencedGroup {
	t.Helper()
	name := servertest.Prefix(t)
	g := &fencedGroup{t: t, log: map[int32][]string{}, cfg: workerConfig{
		Brokers: servertest.Kafka(t), Group: name + "_group", Topic: name, Driver: "pgx",
		DSN: servertest.Postgres(t), Prefix: name + "_", Client: client,
	}}
	var err error
	g.db, err = sql.Open(g.cfg.Driver, g.cfg.DSN)
	require.NoError(t, err)
	t.Cleanup(func() { _ = g.db.Close() })
	g.fence, err = newFence(g.cfg)
	require.NoError(t, err)
	require.NoError(t, g.fence.Migrate(t.Context(), g.db))
	g.exec("CREATE TABLE " + g.cfg.Prefix + "effects (part INTEGER NOT NULL, pos BIGINT NOT NULL)")
	t.Cleanup(func() {
		g.exec("DROP TABLE " + g.cfg.Prefix + "effects")
		assert.NoError(t, g.fence.Migrations().To(context.WithoutCancel(t.Context()), g.db, 0))
	})
	createTopic(t, g.cfg.Brokers, g.cfg.Topic, fencedPartitions, 1)
	return g
}

func (g *fencedGroup) exec(query string) {
	g.t.Helper()
	_, err := g.db.ExecContext(context.WithoutCancel(g.t.Context()), query)
	assert.NoError(g.t, err, query)
}

// round kills one process and stops another one while the heir runs. It returns how many messages
// of its range the stopped process found done when it continued.
func (g *fencedGroup) round() (fencedOff int64) {
	g.t.Helper()
	dying, frozen := g.cfg, g.cfg
	dying.Hold, frozen.Freeze = true, true
	victim, zombie := spawn(g.t, dying), spawn(g.t, frozen)
	// without this it may outlive the test
	g.t.Cleanup(func() { _ = zombie.cmd.Process.Signal(syscall.SIGCONT) })
	held := g.killAndFreeze(victim, zombie)
	eventually(g.t, 30*time.Second, g.committedToEnd)

	require.NoError(g.t, zombie.cmd.Process.Signal(syscall.SIGCONT))
	var found fencedRange
	eventually(g.t, 20*time.Second, func() (bool, string) {
		all := zombie.rangesDone()
		i := slices.IndexFunc(all, func(r fencedRange) bool {
			return r.partition == held.partition && r.from == held.from && r.to == held.to
		})
		if i < 0 {
			return false, "the zombie did not go on: " + zombie.said()
		}
		found = all[i]
		return true, ""
	})
	assert.Equal(g.t, found.to, found.start, "the zombie had effects that somebody else had had")
	g.produce(10) // the zombie is a member again, or will be
	g.end(zombie)
	eventually(g.t, 30*time.Second, g.committedToEnd)
	return found.start - found.from
}

// killAndFreeze sends messages until the victim is inside a transaction and the zombie has stopped.
// It kills the victim there, and returns the range before which the zombie has stopped.
func (g *fencedGroup) killAndFreeze(victim, zombie *process) (held fencedRange) {
	g.t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(60 * time.Second)
	for left := 2; left > 0; {
		select {
		case <-tick.C:
			g.produce(5)
		case line := <-victim.holding:
			// at once: in a rebalance the victim would commit its ranges to Kafka
			require.NoError(g.t, victim.cmd.Process.Signal(syscall.SIGKILL))
			<-victim.ended
			g.t.Log("killed at", line)
			left--
		case line := <-zombie.holding:
			_, err := fmt.Sscanf(line, "HOLDING %d %d %d", &held.partition, &held.from, &held.to)
			require.NoError(g.t, err, line)
			g.t.Log("stopped at", line)
			left--
		case <-limit:
			require.Fail(g.t, "one was not given enough", "%q, %q", victim.said(), zombie.said())
		}
	}
	return held
}

// produce sends n messages to each partition.
func (g *fencedGroup) produce(n int) {
	g.t.Helper()
	var all []record
	for p := range int32(fencedPartitions) {
		for i := range n {
			all = append(all, record{id: idOf(len(g.log[p]) + i), partition: p, value: []byte("x")})
		}
	}
	produceAt(g.t, g.cfg.Brokers, g.cfg.Topic, g.log, all)
}

func (g *fencedGroup) produced() (n int) {
	for _, all := range g.log {
		n += len(all)
	}
	return n
}

func (g *fencedGroup) committedToEnd() (bool, string) {
	return committedToEnd(g.t, g.cfg.Brokers, g.cfg, g.log)
}

func (g *fencedGroup) end(p *process) {
	g.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	assert.NoError(g.t, <-p.ended, "a process has said %s", p.said())
}

// wantOnce requires each message's effect once, and the fence at the end of each partition.
func (g *fencedGroup) wantOnce() {
	g.t.Helper()
	var bad []string
	for p, all := range g.log {
		var effects, distinct, last, next int
		query := "SELECT count(*), count(DISTINCT pos), coalesce(max(pos), -1), (SELECT next_offset FROM " + g.cfg.Prefix + "fence WHERE part = $1)" +
			" FROM " + g.cfg.Prefix + "effects WHERE part = $1"
		require.NoError(g.t, g.db.QueryRowContext(g.t.Context(), query, p).Scan(&effects, &distinct,
			&last, &next))
		if effects != len(all) || distinct != len(all) || last != len(all)-1 || next != len(all) {
			bad = append(bad, fmt.Sprintf(
				"partition %d: of %d messages %d lost, %d doubled; the fence is at %d", p,
				len(all), len(all)-distinct, effects-distinct, next))
		}
	}
	assert.Empty(g.t, bad)
}
