package kafka_test

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/onceward/onceward/contrib/owned"
	"github.com/onceward/onceward/dedup/driver"
	"github.com/onceward/onceward/internal/redistest"
	"github.com/onceward/onceward/internal/servertest"
	"github.com/onceward/onceward/kafkaadapter"
)

const ownedPartitions = 4

// ownedGroup is processes of a group that own their partitions.
type ownedGroup struct {
	t      *testing.T
	cfg    workerConfig
	log    map[int32][]string // what was produced
	random *rand.Rand
	ids    int
}

// TestOwnedThroughAKill has two processes that own their partitions, and kills one of them inside
// an effect. A third process joins and leaves. Every message is sent up to three times, and some
// are also sent to a partition that is not their key's. Each has one effect, except those that the
// killed process had begun and not recorded.
func TestOwnedThroughAKill(t *testing.T) {
	for _, client := range []string{"sarama", "franz"} {
		t.Run(client, func(t *testing.T) {
			t.Parallel()
			brokers, addr := ownedServers(t)
			g := newOwnedGroup(t, client, brokers, addr)
			g.play()
		})
	}
}

// ownedServers returns real servers if servertest requires them, and embedded ones otherwise. While
// other tests run, embedded ones may answer later than a claim lasts. The effect then happens
// again, as it should.
func ownedServers(t *testing.T) (brokers []string, addr string) {
	t.Helper()
	if servertest.Required() {
		return servertest.Kafka(t), servertest.Redis(t)
	}
	mini, _ := redistest.Mini(t)
	return embedded(t).ListenAddrs(), mini.Addr()
}

func newOwnedGroup(t *testing.T, client string, brokers []string, addr string) *ownedGroup {
	t.Helper()
	name := servertest.Prefix(t)
	// a test
	g := &ownedGroup{t: t, log: map[int32][]string{}, random: rand.New(rand.NewPCG(1, 2)),
		cfg: workerConfig{
			Brokers: brokers, Group: name + "_group", Topic: name, Prefix: name, Client: client,
			Redis: addr, Effects: filepath.Join(t.TempDir(), "effects"),
		}}
	c := redis.NewClient(&redis.Options{Addr: addr})
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		for keys := c.Scan(ctx, 0, name+"*", 1000).Iterator(); keys.Next(ctx); {
			c.Unlink(ctx, keys.Val())
		}
		_ = c.Close()
	})
	require.NoError(t, owned.Init(t.Context(), c, ownedOptions(name)))
	createTopic(t, brokers, g.cfg.Topic, ownedPartitions, 1)
	return g
}

func (g *ownedGroup) play() {
	g.t.Helper()
	dying := g.cfg
	dying.Hold = true
	heir, victim := spawn(g.t, g.cfg), spawn(g.t, dying)
	held := g.produceUntilHeld(victim)
	require.NoError(g.t, victim.cmd.Process.Signal(syscall.SIGKILL))
	<-victim.ended
	g.produce(40)
	eventually(g.t, 30*time.Second, g.committedToEnd)

	third := spawn(g.t, g.cfg)
	for begun := 0; begun == 0; begun = third.positions(map[string]int{}) {
		g.produce(5)
		<-time.After(100 * time.Millisecond)
	}
	g.produce(60) // it leaves while it works
	g.end(third)
	g.produce(20)
	eventually(g.t, 30*time.Second, g.committedToEnd)

	g.misplace()
	eventually(g.t, 30*time.Second, g.committedToEnd)
	g.end(heir)
	g.judge(victim.cmd.Process.Pid, held)
}

// produceUntilHeld sends messages until the victim is inside an effect, and returns its id.
func (g *ownedGroup) produceUntilHeld(victim *process) string {
	g.t.Helper()
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(60 * time.Second)
	for {
		select {
		case <-tick.C:
			g.produce(10)
		case line := <-victim.holding:
			return strings.TrimPrefix(line, "HOLDING ")
		case <-limit:
			g.t.Fatalf("the victim was not given enough: %q", victim.said())
		}
	}
}

func (g *ownedGroup) home(id string) record {
	key := "key of " + id
	return record{id: id, key: key, partition: kafkaadapter.Murmur2([]byte(key), ownedPartitions),
		value: []byte("x")}
}

// produce sends n new messages, each up to three times, in any order.
func (g *ownedGroup) produce(n int) {
	g.t.Helper()
	var all []record
	for range n {
		for range 1 + g.ids%3 {
			all = append(all, g.home(idOf(g.ids)))
		}
		g.ids++
	}
	g.random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	produceAt(g.t, g.cfg.Brokers, g.cfg.Topic, g.log, all)
}

// misplace sends messages to a partition that is not their key's, and then to the right one. Two
// thirds of them are done already.
func (g *ownedGroup) misplace() {
	g.t.Helper()
	var all []record
	for i := range 30 {
		id := idOf(i * g.ids / 20) // the last third is new
		r := g.home(id)
		r.partition = (r.partition + 1) % ownedPartitions
		all = append(all, r, g.home(id))
	}
	produceAt(g.t, g.cfg.Brokers, g.cfg.Topic, g.log, all)
}

func (g *ownedGroup) committedToEnd() (bool, string) {
	return committedToEnd(g.t, g.cfg.Brokers, g.cfg, g.log)
}

func (g *ownedGroup) end(p *process) {
	g.t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	assert.NoError(g.t, <-p.ended, "a process has said %s", p.said())
}

// judge reads what the processes have said.
func (g *ownedGroup) judge(victim int, held string) {
	g.t.Helper()
	text, err := os.ReadFile(g.cfg.Effects)
	require.NoError(g.t, err)
	effects, marked, answers := map[string][]int{}, map[string]bool{}, map[string]int{}
	for line := range strings.Lines(string(text)) {
		var what, of string
		var pid int
		_, err := fmt.Sscan(line, &what, &of, &pid)
		require.NoError(g.t, err, line)
		switch what {
		case "effect":
			effects[of] = append(effects[of], pid)
		case "marked":
			marked[fmt.Sprint(of, " ", pid)] = true
		case "filter":
			answers[of]++
		}
	}
	var bad, again []string
	for _, all := range g.log {
		for _, id := range all {
			by := effects[id]
			key, err := driver.NewID("t", kafkaadapter.ScopeOf(g.cfg.Group, g.cfg.Topic), id)
			require.NoError(g.t, err)
			explained := len(by) == 2 && by[0] == victim && by[1] != victim &&
				!marked[fmt.Sprint(hex.EncodeToString(key[:]), " ", victim)]
			switch {
			case len(by) == 1:
			case explained && !slices.Contains(again, id):
				again = append(again, id)
			case !explained:
				bad = append(bad, fmt.Sprintf("%s had effects by %v", id, by))
			}
		}
	}
	g.t.Logf("%d ids; %d had their effect again after the kill; answers of the filter: %v",
		len(effects), len(again), answers)
	switch {
	case len(bad) > 0:
		g.t.Errorf("%d ids had not one effect (the victim was %d), first: %s",
			len(bad), victim, bad[0])
	case !slices.Contains(again, held):
		g.t.Errorf("%s was inside its effect when the process was killed, and %v ran again",
			held, again)
	case answers["new"] == 0:
		g.t.Error("nothing was new: every key was claimed")
	}
}
