package kafka_test

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

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

// TestFenceThroughAKill: of three processes one is killed inside a transaction, with committed
// ranges that Kafka has not heard of, and one stops in front of a transaction, is put out of the
// group, and goes on when the last of them has done all. Every message has its effect once.
func TestFenceThroughAKill(t *testing.T) {
	for _, client := range []string{"sarama", "franz"} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			g := newFencedGroup(t, client)
			heir := spawn(t, g.cfg)
			again, zombies := int64(0), int64(0)
			// A rebalance just before the kill has the victim commit: that round proves nothing.
			for round := 0; round < fenceRounds || again == 0 && round < fenceRounds+5; round++ {
				zombies += g.round()
				again = heir.foundDone()
			}
			g.end(heir)
			again = heir.foundDone()
			t.Logf("%d messages; of those that the heir was given %d were done; zombies went on with %d", g.produced(), again, zombies)
			if again == 0 {
				t.Error("nothing that was done was delivered again: the kills proved nothing")
			}
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
	if g.db, err = sql.Open(g.cfg.Driver, g.cfg.DSN); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = g.db.Close() })
	if g.fence, err = newFence(g.cfg); err != nil {
		t.Fatal(err)
	}
	if err := g.fence.Migrate(t.Context(), g.db); err != nil {
		t.Fatal(err)
	}
	g.exec("CREATE TABLE " + g.cfg.Prefix + "effects (part INTEGER NOT NULL, pos BIGINT NOT NULL)")
	t.Cleanup(func() {
		g.exec("DROP TABLE " + g.cfg.Prefix + "effects")
		if err := g.fence.Migrations().To(context.WithoutCancel(t.Context()), g.db, 0); err != nil {
			t.Error(err)
		}
	})
	createTopic(t, g.cfg.Brokers, g.cfg.Topic, fencedPartitions, 1)
	return g
}

func (g *fencedGroup) exec(query string) {
	g.t.Helper()
	if _, err := g.db.ExecContext(context.WithoutCancel(g.t.Context()), query); err != nil {
		g.t.Errorf("%s: %v", query, err)
	}
}

// round has one process killed and one stopped next to the heir. It returns how many messages of
// its range the stopped one found done when it went on.
func (g *fencedGroup) round() (fencedOff int64) {
	g.t.Helper()
	dying, frozen := g.cfg, g.cfg
	dying.Hold, frozen.Freeze = true, true
	victim, zombie := spawn(g.t, dying), spawn(g.t, frozen)
	// or it outlives the test
	g.t.Cleanup(func() { _ = zombie.cmd.Process.Signal(syscall.SIGCONT) })
	held := g.killAndFreeze(victim, zombie)
	eventually(g.t, 30*time.Second, g.committedToEnd)

	if err := zombie.cmd.Process.Signal(syscall.SIGCONT); err != nil {
		g.t.Fatal(err)
	}
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
	if found.start != found.to {
		g.t.Errorf("the zombie had the effects of [%d, %d), and somebody else had had them",
			found.start, found.to)
	}
	g.produce(10) // it is a member again, or will be
	g.end(zombie)
	eventually(g.t, 30*time.Second, g.committedToEnd)
	return found.start - found.from
}

// killAndFreeze sends messages until the victim is inside a transaction, in which it kills it, and
// the zombie has stopped. It returns the range that the zombie is in front of.
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
			// at once: in a rebalance it would commit what it has done
			if err := victim.cmd.Process.Signal(syscall.SIGKILL); err != nil {
				g.t.Fatal(err)
			}
			<-victim.ended
			g.t.Log("killed at", line)
			left--
		case line := <-zombie.holding:
			if _, err := fmt.Sscanf(line, "HOLDING %d %d %d", &held.partition, &held.from,
				&held.to); err != nil {
				g.t.Fatalf("%q: %v", line, err)
			}
			g.t.Log("stopped at", line)
			left--
		case <-limit:
			g.t.Fatalf("one was not given enough: %q, %q", victim.said(), zombie.said())
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
	if err := <-p.ended; err != nil {
		g.t.Errorf("a process ended with %v: %s", err, p.said())
	}
}

// wantOnce requires each message's effect once, and the fence at the end of each partition.
func (g *fencedGroup) wantOnce() {
	g.t.Helper()
	var bad []string
	for p, all := range g.log {
		var effects, distinct, last, next int
		query := "SELECT count(*), count(DISTINCT pos), coalesce(max(pos), -1), (SELECT next_offset FROM " + g.cfg.Prefix + "fence WHERE part = $1)" +
			" FROM " + g.cfg.Prefix + "effects WHERE part = $1"
		if err := g.db.QueryRowContext(g.t.Context(), query, p).Scan(&effects, &distinct,
			&last, &next); err != nil {
			g.t.Fatal(err)
		}
		if effects != len(all) || distinct != len(all) || last != len(all)-1 || next != len(all) {
			bad = append(bad, fmt.Sprintf(
				"partition %d: of %d messages %d lost, %d doubled; the fence is at %d", p,
				len(all), len(all)-distinct, effects-distinct, next))
		}
	}
	if len(bad) > 0 {
		g.t.Error(strings.Join(bad, "; "))
	}
}
