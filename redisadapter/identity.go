package redisadapter

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

// servers are the masters that have been seen: replication id by run id. A run id lasts
// as long as the process, a replication id until a replica is promoted.
type servers struct {
	runs  map[string]string
	asked time.Time // last, with success
}

// connections is a number that changes whenever the client has dialled, or has dropped a
// connection. It needs no hook in a client that is not ours, and no round trip.
func connections(client redis.UniversalClient) uint64 {
	s := client.PoolStats()
	n := uint64(s.Misses) + uint64(s.StaleConns)
	if p := s.PipelineStats; p != nil {
		n += uint64(p.Misses) + uint64(p.StaleConns)
	}
	return n
}

// dialled reports whether there are connections over which no server has yet been asked
// who it is.
func (g *guard) dialled() bool { return connections(g.client) != g.conns.Load() }

// identify asks every server who it is. The error says that none answered.
func (g *guard) identify(ctx context.Context) error {
	conns := connections(g.client)
	var mu sync.Mutex
	heard := make(map[string]info)
	_, err := eachServer(ctx, g.client, func(ctx context.Context, addr string, node redis.UniversalClient) error {
		fields, err := askInfo(ctx, node)
		if err == nil {
			mu.Lock()
			heard[addr] = fields
			mu.Unlock()
		}
		return err
	})
	if len(heard) == 0 && err != nil {
		return fmt.Errorf("redisadapter: cannot ask who the server is: %w", err)
	}
	return g.meet(ctx, heard, conns)
}

// meet compares servers with those that were known.
func (g *guard) meet(ctx context.Context, heard map[string]info, conns uint64) error {
	g.mu.Lock()
	first := g.known.runs == nil
	if first {
		g.known.runs = make(map[string]string)
	}
	var suspects []Finding
	restarted := false
	for addr, i := range heard {
		run, replication := i["run_id"], i["master_replid"]
		if run == "" {
			continue // an embedded server
		}
		if was, seen := g.known.runs[run]; !first && (!seen || was != replication) {
			suspects = append(suspects, finding(CodeSuspect, addr, "run id %s, replication id %s have not been seen before", run, replication))
			restarted = restarted || !seen && forgetful(i, time.Since(g.known.asked))
		}
		g.known.runs[run] = replication
	}
	g.known.asked = time.Now()
	g.conns.Store(conns)
	g.mu.Unlock()

	for _, f := range suspects {
		g.suspicion(f)
	}
	if restarted {
		return g.lose(ctx)
	}
	return nil
}

// forgetful recognises a server that has been started since the last look, without an
// append-only file: the canary may come from a snapshot, and what was written after that
// is lost. A replica that was promoted is older, or is taken for one of these.
func forgetful(i info, since time.Duration) bool {
	uptime, known := i.count("uptime_in_seconds")
	return known && i["aof_enabled"] == "0" && time.Duration(uptime)*time.Second < since
}
