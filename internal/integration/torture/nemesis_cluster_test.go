package torture_test

import (
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/onceward/onceward/internal/servertest"
)

// nodes are those of the row's own Cluster, each with a client.
type nodes struct {
	*servertest.Server
	all []*redis.Client
}

func newNodes(c *conductor) *nodes {
	c.t.Helper()
	n := &nodes{Server: servertest.Private(c.t, servertest.KindRedisCluster)}
	for _, addr := range n.Addrs {
		client := redis.NewClient(&redis.Options{Addr: addr, ReadTimeout: 2 * time.Second,
			MaxRetries: -1})
		c.t.Cleanup(func() { _ = client.Close() })
		n.all = append(n.all, client)
	}
	return n
}

// masters returns the nodes, counted from 0, that say they are masters with slots.
func (n *nodes) masters(ctx context.Context) (all []int) {
	for i, client := range n.all {
		text, _ := client.ClusterNodes(ctx).Result()
		for line := range strings.Lines(text) {
			if strings.Contains(line, "myself,master") && len(strings.Fields(line)) > 8 {
				all = append(all, i)
			}
		}
	}
	return all
}

// freezeMaster stops one of the masters until another node has its slots, and then wakes it. The
// woken node answers the commands that it got meanwhile as if it were still the master.
func freezeMaster(c *conductor, s *servers, times int) []*nemesis {
	frozen, masters := -1, 0
	return []*nemesis{{
		name: "master frozen", code: strikeAmnesia, times: times, lasts: 5 * time.Second,
		begin: func(c *conductor) {
			all := s.nodes.masters(c.t.Context())
			frozen, masters = all[c.rng.IntN(len(all))], len(all)
			s.nodes.Stop(frozen + 1)
		},
		end: func(c *conductor) {
			c.promoted(s.nodes, frozen, masters)
			s.nodes.Cont(frozen + 1)
			c.counted["promoted"]++
		},
	}}
}

// promoted waits until there are as many masters as before, without the frozen one.
func (c *conductor) promoted(n *nodes, frozen, masters int) {
	c.t.Helper()
	others := &nodes{Server: n.Server}
	for i, client := range n.all {
		if i != frozen {
			others.all = append(others.all, client)
		}
	}
	for limit := time.After(time.Minute); len(others.masters(c.t.Context())) < masters; {
		select {
		case <-limit:
			c.t.Fatal("no replica was promoted")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// moveSlots keeps moving slots with their keys to another master and back.
func moveSlots(c *conductor, s *servers, _ int) []*nemesis {
	ctx, cancel := context.WithCancel(context.Background())
	c.t.Cleanup(cancel)
	var going sync.WaitGroup
	var err error
	moved := 0
	return []*nemesis{{
		name: "slots moving", code: strikeFull, whole: true,
		begin: func(c *conductor) {
			going.Go(func() {
				for from, to := 0, 1; err == nil && ctx.Err() == nil; from, to = to, from {
					// the first master has 0 to 5460
					for first := 0; first < 1500 && err == nil &&
						(ctx.Err() == nil || from == 1); first += 250 {
						err = s.nodes.move(context.WithoutCancel(ctx), first, first+250, from, to)
						moved += 250
					}
				}
			})
		},
		end: func(c *conductor) {
			cancel()
			going.Wait()
			c.must(err)
			c.counted["slots moved"] = moved
		},
	}}
}

// move moves the slots from first to before end, with their keys.
func (n *nodes) move(ctx context.Context, first, end, from, to int) error {
	fromID, toID := n.all[from].ClusterMyID(ctx).Val(), n.all[to].ClusterMyID(ctx).Val()
	if err := n.tell(ctx, to, first, end, "IMPORTING", fromID); err != nil {
		return err
	}
	if err := n.tell(ctx, from, first, end, "MIGRATING", toID); err != nil {
		return err
	}
	for slot := first; slot < end; slot++ {
		if err := n.empty(ctx, slot, from, to); err != nil {
			return err
		}
	}
	// the new owner first: meanwhile no other node may believe that it is the owner
	for _, node := range []int{to, from, 2} {
		if err := n.tell(ctx, node, first, end, "NODE", toID); err != nil {
			return err
		}
	}
	return nil
}

func (n *nodes) tell(ctx context.Context, node, first, end int, state, id string) error {
	_, err := n.all[node].Pipelined(ctx, func(p redis.Pipeliner) error {
		for slot := first; slot < end; slot++ {
			p.Do(ctx, "CLUSTER", "SETSLOT", slot, state, id)
		}
		return nil
	})
	return err
}

// empty moves the keys of a slot until none is left.
func (n *nodes) empty(ctx context.Context, slot, from, to int) error {
	host, port, err := net.SplitHostPort(n.Addrs[to])
	if err != nil {
		return err
	}
	for {
		keys, err := n.all[from].ClusterGetKeysInSlot(ctx, slot, 100).Result()
		if err != nil || len(keys) == 0 {
			return err
		}
		args := []any{"MIGRATE", host, port, "", 0, 5000, "KEYS"}
		for _, key := range keys {
			args = append(args, key)
		}
		if err := n.all[from].Do(ctx, args...).Err(); err != nil {
			return fmt.Errorf("slot %d from node %d to %d: %w", slot, from, to, err)
		}
	}
}
